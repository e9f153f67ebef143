"""A small GAN that learns to draw stripes; as a program it learns until it is killed."""

import sys
from pathlib import Path

import torch
from torch import Tensor

from benfourier.detectors.defense_gan.gan import GanTraining


def stripes() -> Tensor:
    """A hundred images of 8×8."""
    starts = torch.rand(100, 1, 1, 1, generator=torch.Generator().manual_seed(0))
    return (starts + torch.linspace(0, 2, 8)).expand(100, 1, 8, 8) % 1


def training(images: Tensor, *, width: int = 4, seed: int = 0) -> GanTraining:
    """A training that has not begun."""
    return GanTraining(images, (0.0, 1.0), torch.device("cpu"), width, 2e-3, seed)


if __name__ == "__main__":
    training(stripes()).run(10**6, Path(sys.argv[1]))
