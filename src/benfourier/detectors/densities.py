"""Gaussian kernel densities of one layer, one per class, in float64.

log p_c(φ) = log Σ_i exp(−‖φ − φ_i‖² / 2h²) − log n_c − (d/2) log(2πh²), i over the n_c points of class c.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from benfourier.detectors.one_layer import Answers, OneEar, flat
from benfourier.detectors.references import Register

BLOCK = 2**22  # distances at once


@dataclass(frozen=True, eq=False)
class Densities:
    """Points (n, d) with their classes (n,) in ascending order, and the bandwidth h."""

    points: Tensor
    labels: Tensor
    bandwidth: float

    @cached_property
    def _middle(self) -> Tensor:
        return self.points.double().mean(0)

    @cached_property
    def _centred(self) -> Tensor:
        return self.points.double() - self._middle

    @cached_property
    def _members(self) -> dict[int, slice]:
        """Where the points of each class stand."""
        assert bool((self.labels.diff() >= 0).all())
        counts = Counter(self.labels.tolist())
        ends = accumulate(counts.values())
        return {label: slice(end - counts[label], end) for label, end in zip(counts, ends, strict=True)}

    def log_density(self, rows: Tensor, classes: Tensor, own: Tensor) -> Tensor:
        """Returns log p_c of each row under the class given for it, (N,).

        A class without points has the density of all points, less the log of their number: what was never seen in n
        images has at most about one chance in n.

        Args:
            rows: (N, d).
            classes: (N,).
            own: bool (N, n), points that do not count for a row.
        """
        rows = rows.double() - self._middle
        found = rows.new_empty(len(rows))
        everyone = slice(0, len(self.points))
        for label in sorted(set(classes.tolist())):
            members = self._members.get(label, slice(0, 0))
            here = classes == label
            known = here & (~own[:, members]).any(1)
            for chosen, places, less in ((known, members, 0.0), (here & ~known, everyone, math.log(len(self.points)))):
                if bool(chosen.any()):
                    found[chosen] = self._of(rows[chosen], places, own[chosen]) - less
        return found

    def _of(self, rows: Tensor, places: slice, own: Tensor) -> Tensor:
        """Log of the density that the points at those places make, for centred rows, block by block."""
        points, own = self._centred[places], own[:, places]
        count = max(1, BLOCK // len(points))
        found = []
        for start in range(0, len(rows), count):
            part = slice(start, start + count)
            squared = squared_distances(rows[part], points).masked_fill(own[part], torch.inf)
            found.append(log_mean_kernel(squared, (~own[part]).sum(1), self.bandwidth, rows.shape[1]))
        return torch.cat(found)


def squared_distances(rows: Tensor, points: Tensor) -> Tensor:
    """Returns ‖row − point‖² (rows, points); float64 loses about 1e-16 of the squared lengths."""
    lengths = rows.square().sum(1, keepdim=True) + points.square().sum(1)
    return (lengths - 2 * rows @ points.T).clamp(min=0)


def log_mean_kernel(squared: Tensor, counts: Tensor, bandwidth: float, dimension: int) -> Tensor:
    """Returns log of the mean normalised kernel over each row of squared distances, infinite ones left out."""
    constant = dimension / 2 * math.log(2 * math.pi * bandwidth**2)
    return torch.logsumexp(-squared / (2 * bandwidth**2), 1) - counts.log() - constant


@dataclass(frozen=True, eq=False)
class Density:
    """KD alone.

    Args:
        layer: whose responses are the points.
        points: (n, d), class by class.
        labels: (n,).
        ids: source image of each point.
        bandwidth: of the kernel.
        bu: why there is no second number.
    """

    layer: str
    points: Tensor
    labels: Tensor
    ids: tuple[str, ...]
    bandwidth: float
    bu: str

    @property
    def layers(self) -> tuple[str, ...]:
        """The one layer."""
        return (self.layer,)

    @cached_property
    def _densities(self) -> Densities:
        return Densities(self.points, self.labels, self.bandwidth)

    @cached_property
    def _register(self) -> Register:
        return Register(self.ids)

    def ear(self, ids: Sequence[str]) -> OneEar:
        """Returns an ear for one batch, which gives −log p of the predicted class, (images, 1)."""
        return OneEar(flat, lambda rows, logits: self._of(rows, logits.argmax(1).cpu(), ids))

    def stages(self) -> tuple[Answers]:
        """Returns the layer's responses."""
        return (Answers(self.layer),)

    def finished(self, found: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns −log p of the predicted class, (images, 1)."""
        return self._of(found[:, :-1], found[:, -1].long(), ids)

    def _of(self, rows: Tensor, classes: Tensor, ids: Sequence[str]) -> Tensor:
        return -self._densities.log_density(rows, classes, self._register.own(ids)).unsqueeze(1)
