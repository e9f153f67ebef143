"""A small network for MNIST, about two million multiply-adds: attacks with all their iterations take it minutes."""

from torch import nn


def small_mnist(classes: int = 10) -> nn.Sequential:
    """Returns three pooled convolutions and a hidden layer, 1×28×28 to logits."""
    trunk = [*_pooled(1, 16), *_pooled(16, 32), *_pooled(32, 64)]
    dense = [nn.Linear(64 * 3 * 3, 64), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*trunk, nn.Flatten(), nn.Dropout(0.25), *dense, nn.Linear(64, classes))


def _pooled(before: int, width: int) -> list[nn.Module]:
    """A 3×3 convolution, its BatchNorm and ReLU, halved in height and width."""
    return [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
