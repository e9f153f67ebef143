"""Gaussians that share one covariance: squared Mahalanobis distances to the means of classes, in float64.

Channels are first divided by their spread within classes. Then Σ = (1 − δ) S + δ I, S the covariance of what is left
when each image's class mean is subtracted. Its inverse is kept as ‖x‖² / δ − ‖x F‖² where S has not full rank, and as
‖x F‖² where it has; δ = 0 gives the pseudo-inverse of S.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

NOISE = 1e-6  # share of its size by which a channel, rounded to float32, may spread without reason
SINGULAR = 1e-6  # share of an image's direction that other images must have too


@dataclass(frozen=True, eq=False)
class Gaussians:
    """K means and one covariance of C channels.

    Args:
        centre: subtracted from the channels, (C,).
        unit: multiplies them then, (C,); 0 for channels that do not count.
        frame: F, (C, rank).
        floor: 1/δ where S has not full rank, or 0.
        means: of the classes, (K, C), scaled.
        counts: images of each class, (K,).
        shrinkage: δ.
    """

    centre: Tensor
    unit: Tensor
    frame: Tensor
    floor: float
    means: Tensor
    counts: Tensor
    shrinkage: float

    @cached_property
    def _framed_means(self) -> Tensor:
        return self.means @ self.frame

    def scaled(self, rows: Tensor) -> Tensor:
        """Returns rows (N, C) in the units of the Gaussians."""
        return (rows - self.centre) * self.unit

    def distances(self, rows: Tensor) -> Tensor:
        """Returns the squared distance of each row to each mean, (N, K), never below 0."""
        rows = self.scaled(rows)
        found = _squared(rows @ self.frame, self._framed_means)
        return (self.floor * _squared(rows, self.means) - found if self.floor else found).clamp(min=0)

    def distances_without(self, rows: Tensor, left: Tensor, classes: Tensor) -> Tensor:
        """Returns the same as if one image, another for each row, had not been among those the Gaussians came from.

        Its class mean moves, and S loses its share (S is still divided by all images, and δ stays). With d what the
        image had left, n of the N images in its class, and h = (1 − δ) n / (n − 1) / N:
        (Σ − h d dᵀ)⁻¹ = Σ⁻¹ + h Σ⁻¹ d dᵀ Σ⁻¹ / (1 − h dᵀ Σ⁻¹ d). A class of that image alone is gone. Where δ = 0 and
        the image alone spread along a direction, 1 − h dᵀ Σ⁺ d = 0; with k = Σ⁺ d the pseudo-inverse is then (Meyer
        1973) Σ⁺ − (k kᵀ Σ⁺ + Σ⁺ k kᵀ) / ‖k‖² + (kᵀ Σ⁺ k) k kᵀ / ‖k‖⁴.

        Args:
            rows: (N, C).
            left: the image less its class mean, (N, C), scaled.
            classes: place of its class, (N,).
        """
        found, rows, place = self.distances(rows), self.scaled(rows), classes.unsqueeze(1)
        inverse = self._solved(left)  # Σ⁻¹ d
        cross = self._crossed(rows, inverse)
        own_size = (left * inverse).sum(1, keepdim=True)
        others = (self.counts[place] - 1).clamp(min=1)
        own = torch.zeros_like(found).scatter(1, place, 1.0) / others
        found = found + 2 * own * cross + own.square() * own_size
        cross = cross + own * own_size
        share = (1 - self.shrinkage) * self.counts[place] / others / self.counts.sum()
        rest = 1 - share * own_size
        without = found + share / rest.clamp(min=1e-12) * cross.square()
        if self.shrinkage == 0:
            size = inverse.square().sum(1, keepdim=True).clamp(min=1e-300)
            again = self._solved(inverse)
            twice = self._crossed(rows, again) + own * size
            shape = (inverse * again).sum(1, keepdim=True) / size
            less = found - (2 * cross * twice - shape * cross.square()) / size
            without = torch.where(rest > SINGULAR, without, less)
        alone = (self.counts[place] == 1) & (own > 0)
        return without.clamp(min=0).masked_fill(alone, torch.inf)

    def _solved(self, rows: Tensor) -> Tensor:
        """Σ⁻¹ of each row, (N, C)."""
        framed = rows @ self.frame @ self.frame.T
        return self.floor * rows - framed if self.floor else framed

    def _crossed(self, rows: Tensor, others: Tensor) -> Tensor:
        """The products of another row with each row less each mean, (N, K)."""
        return (rows * others).sum(1, keepdim=True) - others @ self.means.T


def _squared(rows: Tensor, points: Tensor) -> Tensor:
    return rows.square().sum(1, keepdim=True) + points.square().sum(1) - 2 * rows @ points.T


def gaussians_of(rows: Tensor, classes: Tensor, shrinkage: float | None) -> tuple[Gaussians, Tensor]:
    """Returns the Gaussians of rows (n, C) with the place of each one's class (n,), and what each row has left.

    Args:
        rows: float64.
        classes: 0..K−1, none of them empty.
        shrinkage: δ; None takes that of Ledoit and Wolf (2004), found from the rows.
    """
    counts = torch.bincount(classes)
    centre = rows.mean(0)
    means = torch.zeros(len(counts), rows.shape[1], dtype=torch.float64).index_add(0, classes, rows - centre)
    means = means / counts.unsqueeze(1)
    left = rows - centre - means[classes]
    spread = left.square().mean(0).sqrt()
    noise = NOISE * rows.square().mean(0).sqrt()
    alive = spread > noise
    unit = torch.where(alive, 1 / spread.clamp(min=1e-300), torch.zeros_like(spread))
    left = left * unit
    variances, axes = _axes(left, float((noise * unit).square().sum()))
    delta = _ledoit_wolf(left, variances, int(alive.sum())) if shrinkage is None else shrinkage
    weights = 1 / ((1 - delta) * variances + delta)
    floor = 1 / delta if delta > 0 and len(variances) < int(alive.sum()) else 0.0
    frame = axes * (floor - weights if floor else weights).clamp(min=0).sqrt()
    return Gaussians(centre, unit, frame, floor, means * unit, counts, delta), left


def _axes(left: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Variances above that of rounding, and their axes (C, rank)."""
    count, channels = left.shape
    if count < channels:
        _, lengths, axes = torch.linalg.svd(left, full_matrices=False)
        variances, axes = lengths.square() / count, axes.T
    else:
        variances, axes = torch.linalg.eigh(left.T @ left / count)
    kept = variances > noise + channels * torch.finfo(torch.float64).eps * variances.max()
    return variances[kept], axes[:, kept]


def _ledoit_wolf(left: Tensor, variances: Tensor, channels: int) -> float:
    """The shrinkage with the least expected squared error, of channels whose variances are 1 on average."""
    if not channels:
        return 1.0
    count = len(left)
    squares = float(variances.square().sum())  # of S's entries
    beta = (float(left.square().sum(1).square().sum()) / count - squares) / count
    delta = squares - 2 * float(variances.sum()) + channels
    return min(max(beta, 0.0) / delta, 1.0) if delta > 0 else 1.0
