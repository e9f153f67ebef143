"""The two networks of a Wasserstein GAN for images of any size (Gulrajani 2017, arXiv:1704.00028).

For 28×28 and 32×32 they are those of Defense-GAN: 4×4 places of 4w numbers, then 2w, w, and the image, each twice as
high and wide as the one before; the critic goes the same way back.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

LATENT = 128
KERNEL, STRIDE = 5, 2
SMALLEST = 4  # sides are halved until they are no longer than that
STAGES = 3  # at least
LEAK = 0.2
Shape = tuple[int, ...]  # (C, H, W)


def sides_of(shape: Shape) -> list[tuple[int, int]]:
    """Returns height and width at every stage, from the smallest to the image's; odd ones are halved upwards."""
    _, height, width = shape
    sides = [(height, width)]
    for _ in range(max(STAGES, math.ceil(math.log2(max(height, width) / SMALLEST)))):
        height, width = (height + 1) // 2, (width + 1) // 2
        sides.append((height, width))
    return sides[::-1]


def depths_of(shape: Shape, width: int) -> list[int]:
    """Returns the channels at every stage: 4w, 2w, then w, at last the image's."""
    inner = [max(width, 4 * width >> stage) for stage in range(len(sides_of(shape)) - 1)]
    return [*inner, shape[0]]


class Generator(nn.Module):
    """Latent vectors (N, 128) to images (N, C, H, W): from 0 to 1 if they have one channel, else from −1 to 1."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        sides, depths = sides_of(shape), depths_of(shape, width)
        self.first = (*sides[0], depths[0])  # channels last: convolutions are faster so
        self.bright = shape[0] == 1
        self.start = nn.Linear(LATENT, math.prod(self.first))
        self.stages = nn.ModuleList()
        for (near, far), (come, go) in zip(pairwise(sides), pairwise(depths), strict=True):
            self.stages.append(nn.ConvTranspose2d(come, go, KERNEL, STRIDE, KERNEL // 2, _odd(near, far)))

    def forward(self, latent: Tensor) -> Tensor:
        """Returns images."""
        held = F.relu(self.start(latent)).view(-1, *self.first).permute(0, 3, 1, 2)
        for stage in self.stages[:-1]:
            held = F.relu(stage(held))
        last = self.stages[-1](held)
        return torch.sigmoid(last) if self.bright else torch.tanh(last)

    def scaled(self, images: Tensor, bounds: tuple[float, float]) -> Tensor:
        """Returns images of a subject with those bounds as this generator would draw them."""
        low, high = bounds
        unit = (images.float() - low) / (high - low)
        return unit if self.bright else 2 * unit - 1


class Critic(nn.Module):
    """Images (N, C, H, W) to how real they look, (N,)."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        depths = depths_of(shape, width)[::-1]
        stages = [nn.Conv2d(come, go, KERNEL, STRIDE, KERNEL // 2) for come, go in pairwise(depths)]
        self.stages = nn.ModuleList(stages)
        self.end = nn.Linear(depths[-1] * math.prod(sides_of(shape)[0]), 1)

    def forward(self, images: Tensor) -> Tensor:
        """Returns one number per image."""
        held = images
        for stage in self.stages:
            held = F.leaky_relu(stage(held), LEAK)
        found: Tensor = self.end(held.flatten(1))
        return found[:, 0]

    def slope(self, images: Tensor) -> Tensor:
        """Returns the gradient (N, C, H, W) of each image's number, from which the weights can learn.

        On either side of zero a leaky ReLU is linear: the gradient is a product of weights and of slopes that are
        constant, so that no second derivative is needed, and a third of the work falls away.
        """
        held, gains, sides = images.detach(), [], []
        with torch.no_grad():
            for stage in self.stages:
                sides.append(held.shape[2:])
                held = stage(held)
                gains.append(torch.where(held > 0, held.new_tensor(1.0), held.new_tensor(LEAK)))
                held = held * gains[-1]
        found = self.end.weight.view(1, *held.shape[1:])
        for stage, gain, side in list(zip(self.stages, gains, sides, strict=True))[::-1]:
            weight, odd = stage.get_parameter("weight"), _odd(gain.shape[2:], side)
            found = F.conv_transpose2d(found * gain, weight, None, STRIDE, KERNEL // 2, odd)
        return found


def penalty(slope: Tensor) -> Tensor:
    """Returns the mean of (‖∇‖₂ − 1)², the norm over all pixels of an image's gradient."""
    lengths: Tensor = torch.linalg.vector_norm(slope.flatten(1), dim=1)
    return (lengths - 1).square().mean()


def _odd(near: Sequence[int], far: Sequence[int]) -> tuple[int, int]:
    """What a transposed convolution is told to add, to come from one size to the next; 0 for an odd one."""
    return (far[0] - 2 * near[0] + 1, far[1] - 2 * near[1] + 1)
