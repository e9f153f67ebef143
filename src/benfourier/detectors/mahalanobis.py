"""Mahalanobis distance of every layer to the nearest class (Lee 2018, arXiv:1807.03888).

M_l(x) = min_c ½ (φ − μ_c)ᵀ Σ⁻¹ (φ − μ_c): φ the averages of layer l over all positions, μ_c the mean of clean images
whose true class is c, Σ their common covariance. With a magnitude m the image is first nudged towards its nearest
class, x − m · sign(∂M_l/∂x), by a gradient of its own for each layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from benfourier.detectors.detector import numbers_of
from benfourier.detectors.fitting import measured
from benfourier.detectors.gaussians import Gaussians, gaussians_of
from benfourier.detectors.held_out import auroc, some
from benfourier.detectors.method import Lessons, Method, check_positive, checked_layers
from benfourier.detectors.nearest_class import Distances, Nudged
from benfourier.detectors.one_layer import OneLayer, averages
from benfourier.detectors.references import labelled
from benfourier.errors import OptionError
from benfourier.subjects.hearing import SOFTMAX
from benfourier.subjects.plan import Plan
from benfourier.subjects.selection import select
from benfourier.subjects.subject import Subject

MAGNITUDES = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.005, 0.01)  # the authors' grid, as shares of the range of pixels


@dataclass(frozen=True, kw_only=True)
class Mahalanobis(Method):
    """One number per layer.

    Args:
        layers: names, globs or "type:Conv2d"; None for all that compute something, without BatchNorm, whose numbers
            are those of the layer before it, and the soft-max.
        shrinkage: of the covariance towards that of independent channels, 0 to 1; 0 takes the pseudo-inverse, "auto"
            finds it from the images (Ledoit 2004).
        magnitude: m, as a share of the range of pixels; 0 only listens, "cv" chooses among the authors' values.
    """

    layers: tuple[str, ...] | None = None
    shrinkage: float | str = "auto"
    magnitude: float | str = 0.0

    name: ClassVar[str] = "mahalanobis"
    own: ClassVar[str] = "logistic"
    clean: ClassVar[Literal["none", "optional", "needed"]] = "optional"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "layers", checked_layers(self.layers))
        if self.magnitude != 0:
            check_positive("magnitude", self.magnitude, "cv")
        if self.shrinkage != 0:
            check_positive("shrinkage", self.shrinkage, "auto")
        if isinstance(self.shrinkage, int | float) and self.shrinkage > 1:
            raise OptionError(f"shrinkage is {self.shrinkage}; it must be from 0 to 1, or 'auto'")

    @property
    def needs(self) -> frozenset[str]:
        """A magnitude asks for gradients."""
        return frozenset({"listens"} if self.magnitude == 0 else {"listens", "gradients"})

    def learn(self, subject: Subject, lessons: Lessons) -> Distances | Nudged:
        """Returns the Gaussians of every layer."""
        given = labelled(lessons)
        names = self._names(subject.plan(tuple(given.images.shape[1:])))
        heard = [OneLayer(name, averages) for name in names]
        label, show = f"{self.name}: averages", lessons.show_progress
        found = numbers_of(subject, heard, given.images, given.ids, label=label, show_progress=show)
        known = sorted(set(given.labels.tolist()))
        alone = len(known) == len(given)  # nothing is known of a spread within classes: take all for one class
        classes = torch.tensor([0 if alone else known.index(label) for label in given.labels.tolist()])
        delta = None if self.shrinkage == "auto" else float(self.shrinkage)
        parts = [gaussians_of(rows, classes, delta) for rows in found]
        measure = _joined(names, parts, classes, given.ids, set(lessons.examples.ids))
        return self._nudged(subject, lessons, measure)

    def restore(self, subject: Subject, kept: Mapping[str, Any]) -> Distances | Nudged:
        """Returns a measure with the Gaussians that were kept."""
        learned: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in kept.items()}
        return (Nudged if kept["magnitude"] else Distances)(**learned)

    def _names(self, plan: Plan) -> tuple[str, ...]:
        found = select(plan.layers, self.layers, pass_through=False)
        if self.layers is None:
            found = tuple(layer for layer in found if layer.name != SOFTMAX and "BatchNorm" not in layer.kind)
        return tuple(layer.name for layer in found)

    def _nudged(self, subject: Subject, lessons: Lessons, measure: Distances) -> Distances | Nudged:
        """The measure with the magnitude that was given, or with the one that tells held-out sources apart best."""
        kept = {field.name: getattr(measure, field.name) for field in fields(measure)}
        if self.magnitude != "cv":
            return self.restore(subject, {**kept, "magnitude": float(self.magnitude)})
        tried = {m: self.restore(subject, {**kept, "magnitude": m}) for m in MAGNITUDES}
        few = some(lessons.examples, self.seed)
        worth = {}
        for magnitude, trial in tried.items():
            rows = measured(subject, trial, few, f"{self.name}: magnitude {magnitude:g}", lessons.show_progress)
            worth[magnitude] = auroc(rows.numbers.numpy(), rows, self.seed)
        return tried[max(worth, key=lambda m: worth[m])]


def _joined(
    names: tuple[str, ...],
    parts: list[tuple[Gaussians, Tensor]],
    classes: Tensor,
    ids: tuple[str, ...],
    asked: set[str],
) -> Distances:
    """The Gaussians of all layers as one measure; what images have left is kept for those that will be asked about."""
    again = [place for place, name in enumerate(ids) if name in asked]
    gaussians = [part for part, _ in parts]
    return Distances(
        layers=names,
        widths=tuple(len(g.centre) for g in gaussians),
        ranks=tuple(g.frame.shape[1] for g in gaussians),
        floors=tuple(g.floor for g in gaussians),
        shrinkages=tuple(g.shrinkage for g in gaussians),
        centre=torch.cat([g.centre for g in gaussians]),
        unit=torch.cat([g.unit for g in gaussians]),
        means=torch.cat([g.means for g in gaussians], 1),
        frames=torch.cat([g.frame.flatten() for g in gaussians]),
        counts=gaussians[0].counts,
        left=torch.cat([left[again].to(torch.float32 if g.shrinkage else torch.float64) for g, left in parts], 1),
        classes=classes[again],
        ids=tuple(ids[place] for place in again),
        magnitude=0.0,
    )
