"""The paper's networks as plain modules with random weights, by id."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType

from torch import nn

from benfourier.errors import OptionError, check_choice, check_whole
from benfourier.subjects.zoo.alexnet import alexnet
from benfourier.subjects.zoo.lid import lid_cifar10, lid_mnist, lid_svhn
from benfourier.subjects.zoo.resnet import cifar_resnet20, cifar_resnet56
from benfourier.subjects.zoo.vgg import cifar_vgg19, vgg16, vgg19

__all__ = ["ZOO", "Entry", "network"]


@dataclass(frozen=True)
class Entry:
    """A network's id, its factory, and the images and classes it is made for."""

    name: str
    factory: Callable[..., nn.Module]
    channels: int
    size: int
    classes: int


ENTRIES = (
    Entry("lid-mnist", lid_mnist, channels=1, size=28, classes=10),
    Entry("lid-cifar10", lid_cifar10, channels=3, size=32, classes=10),
    Entry("lid-svhn", lid_svhn, channels=3, size=32, classes=10),
    Entry("alexnet", alexnet, channels=3, size=224, classes=1000),
    Entry("vgg16", vgg16, channels=3, size=224, classes=1000),
    Entry("vgg19", vgg19, channels=3, size=224, classes=1000),
    Entry("cifar-vgg19", cifar_vgg19, channels=3, size=32, classes=10),
    Entry("cifar-resnet20", cifar_resnet20, channels=3, size=32, classes=10),
    Entry("cifar-resnet56", cifar_resnet56, channels=3, size=32, classes=10),
)
ZOO = MappingProxyType({entry.name: entry for entry in ENTRIES})


def network(name: str, **options: int) -> nn.Module:
    """Returns a network of the zoo with random weights.

    Args:
        name: an id of `ZOO`.
        options: passed to the factory, for example `classes=8` where the factory takes it.
    """
    check_choice("network", name, ZOO)
    factory = ZOO[name].factory
    unknown = sorted(options.keys() - signature(factory).parameters)
    if unknown:
        allowed = ", ".join(signature(factory).parameters) or "none"
        raise OptionError(f"{name} does not take the option {unknown[0]!r}; allowed: {allowed}")
    return factory(**{option: check_whole(option, value) for option, value in options.items()})
