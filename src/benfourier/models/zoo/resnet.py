"""ResNets for 32×32 images (He 2016, arXiv:1512.03385, section 4.2) with parameter-free shortcuts (option A)."""

from functools import partial

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.added = width - before
        self.conv1 = _conv(before, width, stride=2 if self.added else 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, maps: Tensor) -> Tensor:
        """Returns the activations; half the sides and twice the channels where the block adds channels."""
        inner = F.relu(self.bn1(self.conv1(maps)))
        outer = self.bn2(self.conv2(inner))
        return F.relu(outer + (shortcut(maps, self.added) if self.added else maps))


class ResNet(nn.Module):
    """Three stages of blocks, 16, 32 and 64 channels wide, 3×32×32 to logits."""

    def __init__(self, blocks: int, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = _conv(3, 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks)
        self.layer2 = _stage(16, 32, blocks)
        self.layer3 = _stage(32, 64, blocks)
        self.linear = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits, (images, classes)."""
        maps = F.relu(self.bn1(self.conv1(images)))
        maps = self.layer3(self.layer2(self.layer1(maps)))
        logits: Tensor = self.linear(maps.mean(dim=(2, 3)))
        return logits


# with random weights
cifar_resnet20, cifar_resnet56 = partial(ResNet, 3), partial(ResNet, 9)


def shortcut(maps: Tensor, added: int) -> Tensor:
    """Returns every second row and column, between zero channels, half of the added on each side."""
    return F.pad(maps[:, :, ::2, ::2], (0, 0, 0, 0, added // 2, added // 2))


def _stage(before: int, width: int, blocks: int) -> nn.Sequential:
    """Blocks of one width; the first comes from the stage before."""
    return nn.Sequential(ResidualBlock(before, width), *(ResidualBlock(width, width) for _ in range(blocks - 1)))


def _conv(before: int, width: int, *, stride: int = 1) -> nn.Conv2d:
    """A 3×3 convolution without bias, drawn as in He 2015 (arXiv:1502.01852)."""
    conv = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    return conv
