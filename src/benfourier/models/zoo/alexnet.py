"""AlexNet in its one-column form (Krizhevsky 2014, arXiv:1404.5997), with the key names of torchvision."""

import torch
from torch import Tensor, nn


class AlexNet(nn.Module):
    """Five convolutions and three linear layers, 3×224×224 to logits."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(*_conv(3, 64, 11, stride=4, padding=2), nn.MaxPool2d(3, stride=2)),
            *(*_conv(64, 192, 5, padding=2), nn.MaxPool2d(3, stride=2)),
            *(*_conv(192, 384, 3, padding=1), *_conv(384, 256, 3, padding=1)),
            *(*_conv(256, 256, 3, padding=1), nn.MaxPool2d(3, stride=2)),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            *(nn.Dropout(0.5), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True)),
            *(nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(inplace=True)),
            nn.Linear(4096, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits, (images, classes)."""
        maps = self.avgpool(self.features(images))
        logits: Tensor = self.classifier(torch.flatten(maps, 1))
        return logits


def _conv(before: int, width: int, kernel: int, *, stride: int = 1, padding: int) -> list[nn.Module]:
    """A convolution and its ReLU."""
    return [nn.Conv2d(before, width, kernel, stride=stride, padding=padding), nn.ReLU(inplace=True)]
