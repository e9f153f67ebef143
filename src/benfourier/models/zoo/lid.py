"""The networks of LID (Ma 2018, arXiv:1801.02613): one plain Sequential each, inputs in [-0.5, 0.5], logits out.

BatchNorm comes after ReLU, as in the authors' code; that code ends in a soft-max, which counts as one more layer.
"""

from torch import nn


def lid_mnist() -> nn.Sequential:
    """Returns the MNIST network: 14 modules, 1×28×28 to 10 logits."""
    return nn.Sequential(*_valid_trunk(1), *_dense(64 * 12 * 12, 128), nn.Linear(128, 10))


def lid_svhn() -> nn.Sequential:
    """Returns the SVHN network: 18 modules, 3×32×32 to 10 logits."""
    return nn.Sequential(*_valid_trunk(3), *_dense(64 * 14 * 14, 512), *_dense(512, 128), nn.Linear(128, 10))


def lid_cifar10() -> nn.Sequential:
    """Returns the CIFAR-10 network: 32 modules, 3×32×32 to 10 logits."""
    trunk: list[nn.Module] = []
    for before, width in ((3, 32), (32, 64), (64, 128)):
        trunk += [*_conv(before, width, padding=1), *_conv(width, width, padding=1), nn.MaxPool2d(2)]
    dense = [*_dense(128 * 4 * 4, 1024), *_dense(1024, 512)]
    return nn.Sequential(*trunk, nn.Flatten(), nn.Dropout(0.5), *dense, nn.Linear(512, 10))


def _valid_trunk(channels: int) -> list[nn.Module]:
    """Two convolutions without padding, pooled, as one row per image."""
    return [*_conv(channels, 64), *_conv(64, 64), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten()]


def _conv(before: int, width: int, *, padding: int = 0) -> list[nn.Module]:
    """A 3×3 convolution, its ReLU and its BatchNorm."""
    return [nn.Conv2d(before, width, 3, padding=padding), nn.ReLU(), nn.BatchNorm2d(width)]


def _dense(before: int, width: int) -> list[nn.Module]:
    """A hidden linear layer, its ReLU, BatchNorm and Dropout."""
    return [nn.Linear(before, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Dropout(0.5)]
