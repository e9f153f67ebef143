"""Images as a network in training sees them: moved by a few pixels, mirrored."""

import torch
from torch import Tensor


def moved(pixels: Tensor, shift: int, generator: torch.Generator, *, flips: bool) -> Tensor:
    """Returns each image moved by up to shift pixels both ways, and mirrored in half the cases if flips are wanted.

    Pixels at the border are repeated where nothing comes in. All is one gather of bytes: a hundredth of a step's time.

    Args:
        pixels: (N, H, W, C).
        shift: greatest move, in pixels.
        generator: of the draws.
        flips: mirror left to right.
    """
    count, height, width, _ = pixels.shape
    down, right = torch.randint(-shift, shift + 1, (2, count, 1, 1), generator=generator)
    rows = (torch.arange(height).view(1, height, 1) + down).clamp(0, height - 1)
    columns = (torch.arange(width).view(1, 1, width) + right).clamp(0, width - 1)
    if flips:
        mirrored = torch.rand(count, 1, 1, generator=generator) < 0.5
        columns = torch.where(mirrored, width - 1 - columns, columns)
    found = pixels[torch.arange(count).view(count, 1, 1), rows, columns]
    assert found.shape == pixels.shape
    return found
