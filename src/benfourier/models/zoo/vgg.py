"""VGG networks (Simonyan & Zisserman 2015, arXiv:1409.1556), with the key names and initial weights of torchvision."""

from collections import OrderedDict
from functools import partial

import torch
from torch import Tensor, nn

WIDTHS = (64, 128, 256, 512, 512)
DEPTHS_16 = (2, 2, 3, 3, 3)
DEPTHS_19 = (2, 2, 4, 4, 4)


class VGG(nn.Module):
    """Five stages of 3×3 convolutions and three linear layers, 3×224×224 to logits."""

    def __init__(self, depths: tuple[int, ...], classes: int = 1000) -> None:
        super().__init__()
        self.features = _features(depths)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            *(nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)),
            *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)),
            nn.Linear(4096, classes),
        )
        self.apply(_initialise)

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits, (images, classes)."""
        maps = self.avgpool(self.features(images))
        logits: Tensor = self.classifier(torch.flatten(maps, 1))
        return logits


# with random weights
vgg16, vgg19 = partial(VGG, DEPTHS_16), partial(VGG, DEPTHS_19)


def cifar_vgg19(classes: int = 10) -> nn.Sequential:
    """Returns VGG-19 with BatchNorm and one linear layer, 3×32×32 to logits."""
    parts = OrderedDict[str, nn.Module](features=_features(DEPTHS_19, batch_norm=True), flatten=nn.Flatten())
    parts["classifier"] = nn.Linear(512, classes)  # five poolings leave 1×1 of 32×32
    return nn.Sequential(parts).apply(_initialise)


def _features(depths: tuple[int, ...], *, batch_norm: bool = False) -> nn.Sequential:
    """The five stages, each closed by a pooling that halves the sides."""
    layers: list[nn.Module] = []
    before = 3
    for depth, width in zip(depths, WIDTHS, strict=True):
        for _ in range(depth):
            norm = [nn.BatchNorm2d(width)] if batch_norm else []
            layers += [nn.Conv2d(before, width, 3, padding=1), *norm, nn.ReLU(inplace=True)]
            before = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def _initialise(module: nn.Module) -> None:
    """Draws a module's first weights and clears its bias."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.01)
    if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
