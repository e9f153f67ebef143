"""Noisy twins of images: Gaussian noise that is as long as adversarial perturbations are."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from benfourier.attacks.attack import rounded
from benfourier.data.draws import generator
from benfourier.errors import InputError
from benfourier.subjects.subject import Subject

CENTRES: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {"median": lambda lengths: lengths.quantile(0.5), "mean": torch.mean}
)
MOST = 1e6  # noise of so many widths of the bounds sends every pixel to one of them
TOLERANCE = 1e-6  # of the level
ROWS = 256  # images whose noise is measured at once


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise of any level for some images, always along the same draws.

    Args:
        subject: to whose bounds images are clipped.
        clean: (N, C, H, W).
        draws: the same of standard normal numbers.
        eight_bit: whether noisy images have 8-bit pixels.
    """

    subject: Subject
    clean: Tensor
    draws: Tensor
    eight_bit: bool

    def at(self, level: float, rows: slice = slice(None)) -> Tensor:
        """Returns images with noise of a level, within bounds."""
        moved = (self.clean[rows] + level * self.draws[rows]).clamp(*self.subject.bounds)
        return rounded(moved, self.subject) if self.eight_bit else moved

    def lengths(self, level: float) -> Tensor:
        """Returns the L2 of what is left of the noise within bounds, (N,) in float64."""
        parts = [slice(first, first + ROWS) for first in range(0, len(self.clean), ROWS)]
        return torch.cat([_lengths(self.at(level, part), self.clean[part]) for part in parts])

    def level_for(self, length: float, centre: str) -> float:
        """Returns the level whose median or mean length is the one given, by bisection: lengths rise with the level."""
        low, high = self.subject.bounds
        greatest = self._centre(MOST * (high - low), centre)
        if greatest < length:
            raise InputError(
                f"the {centre} L2 of the adversarial perturbations is {length:.4g}, that of noise within the bounds "
                f"{self.subject.bounds} at most {greatest:.4g}; take an attack that adds less"
            )
        below, above = 0.0, length / math.sqrt(self.clean[0].numel())
        while self._centre(above, centre) < length:
            below, above = above, 2 * above
        while above - below > TOLERANCE * above:
            middle = (below + above) / 2
            below, above = (middle, above) if self._centre(middle, centre) < length else (below, middle)
        return above

    def _centre(self, level: float, centre: str) -> float:
        return float(CENTRES[centre](self.lengths(level)))


def draws(shape: Sequence[int], seed: int, ids: Sequence[str]) -> Tensor:
    """Returns standard normal numbers (N, *shape), each row from a generator of its image's id."""
    return torch.stack([torch.randn(*shape, generator=generator(seed, f"noise\0{name}")) for name in ids])


def _lengths(moved: Tensor, clean: Tensor) -> Tensor:
    return (moved.double() - clean.double()).flatten(1).square().sum(1).sqrt()
