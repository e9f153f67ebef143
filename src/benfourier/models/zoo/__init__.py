"""Networks as plain modules with random weights, by id: the paper's, EfficientNet-Lite0, and a small one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from torch import Tensor, nn

from benfourier.models.zoo.alexnet import AlexNet
from benfourier.models.zoo.efficientnet import EfficientNetLite, efficientnet_lite0_weights
from benfourier.models.zoo.lid import lid_cifar10, lid_mnist, lid_svhn
from benfourier.models.zoo.resnet import cifar_resnet20, cifar_resnet56
from benfourier.models.zoo.small import small_mnist
from benfourier.models.zoo.trunk_weights import trunk_weights
from benfourier.models.zoo.vgg import cifar_vgg19, vgg16, vgg19

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and std
LID = ((0.5,), None)
LITE = ((127 / 255,), (128 / 255,))


@dataclass(frozen=True)
class ZooEntry:
    """A network's id, its factory, and the images and classes it is made for."""

    name: str
    factory: Callable[..., nn.Module]  # makes the module, with random weights
    channels: int
    size: int  # height and width of the images
    classes: int  # unless the factory is given another number
    scaling: tuple[tuple[float, ...], tuple[float, ...] | None]  # mean and std of pixels in [0, 1]
    flips: bool = True  # whether a mirrored image is still of its class
    weights: Callable[[], Mapping[str, Tensor]] | None = None  # fetches trained weights, if there are any
    trunk: Callable[[], Mapping[str, Tensor]] | None = None  # those of the convolutions, where the whole has none


ENTRIES = (
    ZooEntry("lid-mnist", lid_mnist, 1, 28, 10, LID, flips=False),
    ZooEntry("lid-cifar10", lid_cifar10, 3, 32, 10, LID),
    ZooEntry("lid-svhn", lid_svhn, 3, 32, 10, LID, flips=False),
    ZooEntry("small-mnist", small_mnist, 1, 28, 10, LID, flips=False),
    ZooEntry("alexnet", AlexNet, 3, 224, 1000, IMAGENET, trunk=partial(trunk_weights, "alexnet", AlexNet)),
    ZooEntry("vgg16", vgg16, 3, 224, 1000, IMAGENET, trunk=partial(trunk_weights, "vgg16", vgg16)),
    ZooEntry("vgg19", vgg19, 3, 224, 1000, IMAGENET),
    ZooEntry("cifar-vgg19", cifar_vgg19, 3, 32, 10, IMAGENET),
    ZooEntry("cifar-resnet20", cifar_resnet20, 3, 32, 10, IMAGENET),
    ZooEntry("cifar-resnet56", cifar_resnet56, 3, 32, 10, IMAGENET),
    ZooEntry("efficientnet-lite0", EfficientNetLite, 3, 224, 1000, LITE, weights=efficientnet_lite0_weights),
)
ZOO = MappingProxyType({entry.name: entry for entry in ENTRIES})
