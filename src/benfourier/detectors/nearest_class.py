"""Measures of how far every layer's averages are from the nearest class."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from benfourier.detectors.gaussians import Gaussians
from benfourier.detectors.listening import listen
from benfourier.detectors.one_layer import Averages, ManyEar, OneLayer, averages
from benfourier.detectors.references import Register
from benfourier.subjects.features import MEMORY
from benfourier.subjects.hearing import undisturbed
from benfourier.subjects.subject import Subject


@dataclass(frozen=True, eq=False)
class LayerGaussians:
    """Gaussians of several layers, their channels side by side.

    Args:
        layers: their names.
        widths: channels of each.
        ranks: width of each one's frame.
        floors: one per layer.
        shrinkages: one per layer.
        centre: (all channels,).
        unit: (all channels,).
        means: (K, all channels).
        frames: every layer's (width, rank), flattened, one after the other.
        counts: images of each class, (K,).
        left: images that may be asked about again, less their class means, (n, all channels).
        classes: of these, (n,).
        ids: of these.
        magnitude: of the nudge.
    """

    layers: tuple[str, ...]
    widths: tuple[int, ...]
    ranks: tuple[int, ...]
    floors: tuple[float, ...]
    shrinkages: tuple[float, ...]
    centre: Tensor
    unit: Tensor
    means: Tensor
    frames: Tensor
    counts: Tensor
    left: Tensor
    classes: Tensor
    ids: tuple[str, ...]
    magnitude: float

    @cached_property
    def _spans(self) -> list[slice]:
        """Which channels are each layer's."""
        ends = accumulate(self.widths)
        return [slice(end - width, end) for width, end in zip(self.widths, ends, strict=True)]

    @cached_property
    def _gaussians(self) -> list[Gaussians]:
        sizes = [width * rank for width, rank in zip(self.widths, self.ranks, strict=True)]
        shapes = zip(self.widths, self.ranks, strict=True)
        frames = [part.view(shape) for part, shape in zip(torch.split(self.frames, sizes), shapes, strict=True)]
        rest = zip(self._spans, frames, self.floors, self.shrinkages, strict=True)
        return [
            Gaussians(self.centre[span], self.unit[span], frame, floor, self.means[:, span], self.counts, shrinkage)
            for span, frame, floor, shrinkage in rest
        ]

    @cached_property
    def _register(self) -> Register:
        return Register(self.ids)

    def number(self, layer: str, rows: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns half the squared distance of averages (N, width) to the nearest class, (N,), own images left out."""
        place = self.layers.index(layer)
        gaussians = self._gaussians[place]
        found = gaussians.distances(rows)
        known = [(row, own) for row, name in enumerate(ids) for own in self._register.places(name)]
        if known:
            asked, own = torch.tensor(known).T
            left = self.left[own, self._spans[place]].double()
            found = found.index_put((asked,), gaussians.distances_without(rows[asked], left, self.classes[own]))
        return found.amin(1) / 2


@dataclass(frozen=True, eq=False)
class Distances(LayerGaussians):
    """The distances of images as they are."""

    def ear(self, ids: Sequence[str]) -> "_Ear":
        """Returns an ear for one batch."""
        return _Ear(self, ids)

    def stages(self) -> tuple[Averages]:
        """Returns the averages of all layers."""
        return (Averages(self.layers),)

    def finished(self, found: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (images, layers)."""
        parts = zip(self.layers, torch.split(found, list(self.widths), 1), strict=True)
        return torch.stack([self.number(name, rows, ids) for name, rows in parts], 1)


class _Ear(ManyEar):
    def __init__(self, measure: Distances, ids: Sequence[str]) -> None:
        super().__init__(measure.layers)
        self._measure, self._ids = measure, ids

    def numbers(self, logits: Tensor) -> Tensor:
        """Returns (images, layers)."""
        return self._measure.finished(super().numbers(logits), self._ids)


@dataclass(frozen=True, eq=False)
class Nudged(LayerGaussians):
    """The distances of images that were nudged towards their nearest class, by each layer for itself."""

    def work(self, subject: Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (images, layers); what autograd keeps for the images at work fits the memory."""
        plan = subject.plan(tuple(images.shape[1:]))
        kept = 2 * sum(layer.entries for layer in plan.layers) * subject.dtype.itemsize
        size = max(1, MEMORY // kept)
        parts = [slice(start, start + size) for start in range(0, len(images), size)]
        with torch.inference_mode(False), undisturbed(subject.module):
            return torch.cat([self._part(subject, images[part].detach().clone(), ids[part]) for part in parts])

    def _part(self, subject: Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        low, high = subject.bounds
        step = self.magnitude * (high - low)
        with torch.enable_grad():
            leaf = images.to(subject.device, subject.dtype).requires_grad_()
            heard = listen(subject, leaf, [OneLayer(name, averages) for name in self.layers], ids)[1]
            sums = [self.number(name, rows, ids).sum() for name, rows in zip(self.layers, heard, strict=True)]
        found = []
        for name, total in zip(self.layers, sums, strict=True):
            (slope,) = torch.autograd.grad(total, leaf, retain_graph=True)
            with torch.no_grad():
                nudged = leaf - step * torch.where(slope >= 0, 1.0, -1.0).to(leaf)
                _, (rows,) = listen(subject, nudged, [OneLayer(name, averages)], ids)
                found.append(self.number(name, rows, ids))
        return torch.stack(found, 1)
