"""MBF: magnitudes of Benford-Fourier coefficients of every layer (Ma 2020, arXiv:2005.05552).

|â_n| = |(1/M) Σ_m exp(−j2πn log10|r_m|)|, r the responses of one layer to one image less their mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from benfourier import kernels
from benfourier.detectors.method import Lessons, Method, checked_layers
from benfourier.errors import check_choice, check_whole
from benfourier.subjects.hearing import SOFTMAX
from benfourier.subjects.stations import Walker
from benfourier.subjects.subject import Subject
from benfourier.theory.coefficients import ZEROS, Zeros

PRECISIONS = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class MBF(Method):
    """The method of the paper.

    Args:
        orders: |â_n| is taken for n = 1..orders.
        layers: names, globs or "type:Conv2d"; None for all.
        pass_through: also layers that only pass numbers on in eval mode.
        centre: subtract the mean of each image's responses first.
        zeros: what becomes of exact zeros after centring: "drop", "count" or "one".
        precision: of the soft-max layer, "float64" or "float32"; the others are as the network gives them.

    Scaling, C and γ are those that did best in cross-validation: docs/detectors.md has the table.
    """

    scaling: str = "none"
    C: float | str = 10.0
    gamma: float | str = 1.0
    orders: int = 16
    layers: tuple[str, ...] | None = None
    pass_through: bool = False
    centre: bool = True
    zeros: Zeros = "drop"
    precision: str = "float64"

    name: ClassVar[str] = "mbf"
    lasting: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"orders": 16, "pass_through": True, "scaling": "none", "C": 1.0, "gamma": 1.0, "classifier": "svm"}
    }
    needs = frozenset({"listens"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("orders", self.orders)
        check_choice("zeros", self.zeros, ZEROS)
        check_choice("precision", self.precision, tuple(PRECISIONS))
        object.__setattr__(self, "layers", checked_layers(self.layers))

    def learn(self, subject: Subject, lessons: Lessons) -> "Magnitudes":
        """Returns the layers to listen to, the one thing that is found out from the subject."""
        shape = tuple(lessons.examples.clean.shape[1:])
        subject.plan(shape)
        return self.restore(subject, {"layers": subject.layers(self.layers, pass_through=self.pass_through)})

    def restore(self, subject: Subject, kept: Mapping[str, Any]) -> "Magnitudes":
        """Returns a measure for the layers that were kept."""
        return Magnitudes(tuple(kept["layers"]), self.orders, self.centre, self.zeros, self.precision)


@dataclass(frozen=True, eq=False)
class Magnitudes:
    """|â_n| of the named layers, layer by layer in firing order."""

    layers: tuple[str, ...]
    orders: int
    centre: bool
    zeros: Zeros
    precision: str

    def ear(self, ids: Sequence[str]) -> "MagnitudeEar":
        """Returns an ear for one batch."""
        return MagnitudeEar(self)


class MagnitudeEar:
    """Takes |â_n| of each response, or is told them."""

    def __init__(self, measure: Magnitudes) -> None:
        self._measure = measure
        self._heard: dict[str, Tensor] = {}

    def hear(self, name: str, response: Tensor) -> None:
        """Takes the magnitudes at once, while the response is in cache."""
        m = self._measure
        if name == SOFTMAX:
            response = response.to(PRECISIONS[m.precision])
        self._heard[name] = kernels.unchecked_magnitudes(
            response, m.orders, centre=m.centre, zeros=m.zeros, method="auto"
        )

    def walk(self, walker: Walker, x: Tensor, other: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Returns the last response of a station and |â_n| of each, or None if it must be heard step by step."""
        m = self._measure
        return walker.walk(x, other, m.orders, centre=m.centre, zeros=m.zeros)

    def take(self, name: str, magnitudes: Tensor) -> None:
        """Takes magnitudes that `walk` has found."""
        self._heard[name] = magnitudes

    def numbers(self, logits: Tensor) -> Tensor:
        """Returns (images, layers · orders)."""
        return torch.cat([self._heard[name].to(logits.device) for name in self._measure.layers], dim=1)
