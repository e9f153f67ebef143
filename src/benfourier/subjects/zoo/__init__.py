"""Networks as plain modules with random weights, by id: the paper's, EfficientNet-Lite0, and a small one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType

from torch import Tensor, nn

from benfourier.errors import OptionError, check_choice, check_whole
from benfourier.subjects.zoo.alexnet import alexnet, alexnet_trunk
from benfourier.subjects.zoo.efficientnet import efficientnet_lite0, efficientnet_lite0_weights
from benfourier.subjects.zoo.lid import lid_cifar10, lid_mnist, lid_svhn
from benfourier.subjects.zoo.resnet import cifar_resnet20, cifar_resnet56
from benfourier.subjects.zoo.small import small_mnist
from benfourier.subjects.zoo.vgg import cifar_vgg19, vgg16, vgg16_trunk, vgg19

__all__ = ["ZOO", "Entry", "network"]


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std
LID = ((0.5,), None)
LITE = ((127 / 255,), (128 / 255,))


@dataclass(frozen=True)
class Entry:
    """A network's id, its factory, and the images and classes it is made for.

    Attributes:
        name: the id.
        factory: makes the module, with random weights.
        channels: of the images.
        size: height and width of the images.
        classes: number of classes, unless the factory is given another.
        scaling: mean and std per channel, or one for all, of pixels in [0, 1].
        flips: whether a mirrored image is still of its class.
        weights: fetches trained weights, if there are any.
        trunk: fetches trained weights of its convolutions, where those of the whole are not to be had.
    """

    name: str
    factory: Callable[..., nn.Module]
    channels: int
    size: int
    classes: int
    scaling: tuple[tuple[float, ...], tuple[float, ...] | None]
    flips: bool = True
    weights: Callable[[], Mapping[str, Tensor]] | None = None
    trunk: Callable[[], Mapping[str, Tensor]] | None = None


ENTRIES = (
    Entry("lid-mnist", lid_mnist, 1, 28, 10, LID, flips=False),
    Entry("lid-cifar10", lid_cifar10, 3, 32, 10, LID),
    Entry("lid-svhn", lid_svhn, 3, 32, 10, LID, flips=False),
    Entry("small-mnist", small_mnist, 1, 28, 10, LID, flips=False),
    Entry("alexnet", alexnet, 3, 224, 1000, IMAGENET, trunk=alexnet_trunk),
    Entry("vgg16", vgg16, 3, 224, 1000, IMAGENET, trunk=vgg16_trunk),
    Entry("vgg19", vgg19, 3, 224, 1000, IMAGENET),
    Entry("cifar-vgg19", cifar_vgg19, 3, 32, 10, IMAGENET),
    Entry("cifar-resnet20", cifar_resnet20, 3, 32, 10, IMAGENET),
    Entry("cifar-resnet56", cifar_resnet56, 3, 32, 10, IMAGENET),
    Entry("efficientnet-lite0", efficientnet_lite0, 3, 224, 1000, LITE, weights=efficientnet_lite0_weights),
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
