"""Gradients of some layers in eval mode, made quicker than torch makes them; what the layers return stays the same."""

from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

FEW, MANY = 3, 16  # channels and filters with which a convolution's gradient is quicker as a product of matrices


class Normalisation(torch.autograd.Function):
    """BatchNorm, whose gradient needs its scale and neither its input nor sums over the batch."""

    @staticmethod
    def forward(context: Any, entering: Tensor, layer: nn.BatchNorm2d) -> Tensor:
        """Returns what the layer does."""
        context.layer = layer
        return type(layer).forward(layer, entering)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Returns the gradient of what entered."""
        layer = context.layer
        scale = (layer.running_var + layer.eps).rsqrt()
        if layer.weight is not None:
            scale = scale * layer.weight
        return gradient * scale.view(1, -1, *(1 for _ in gradient.shape[2:])), None


class FirstConvolution(torch.autograd.Function):
    """A convolution of images, whose gradient torch makes for many channels and not for 1 or 3."""

    @staticmethod
    def forward(context: Any, images: Tensor, layer: nn.Conv2d) -> Tensor:
        """Returns what the layer does."""
        context.layer, context.size = layer, images.shape[2:]
        return type(layer).forward(layer, images)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Returns the gradient of the images: each output's share in each of its pixels, added up."""
        layer, (height, width) = context.layer, context.size
        shares = layer.weight.flatten(1).t() @ gradient.flatten(2)  # (N, C · kernel, outputs)
        shares = shares.view(len(gradient), -1, *layer.kernel_size, *gradient.shape[2:])
        (up, left), (down, right) = layer.padding, layer.stride
        whole = gradient.new_zeros(*shares.shape[:2], height + 2 * up, width + 2 * left)
        for i, j in product(*map(range, layer.kernel_size)):
            y, x = i * layer.dilation[0], j * layer.dilation[1]
            rows = slice(y, y + down * (shares.shape[4] - 1) + 1, down)
            columns = slice(x, x + right * (shares.shape[5] - 1) + 1, right)
            whole[:, :, rows, columns] += shares[:, :, i, j]
        return whole[:, :, up : up + height, left : left + width], None


def shortcut(layer: nn.Module) -> type[torch.autograd.Function] | None:
    """Returns the quicker way for a layer of a known type, if there is one."""
    if type(layer) in (nn.BatchNorm1d, nn.BatchNorm2d):
        return Normalisation if isinstance(layer.running_var, Tensor) else None
    if type(layer) is not nn.Conv2d or layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        return None
    quicker = layer.groups == 1 and layer.in_channels <= FEW and layer.out_channels >= MANY
    return FirstConvolution if quicker else None
