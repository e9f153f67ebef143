"""The trivial detector: one less the largest posterior (Hendrycks 2017, arXiv:1610.02136)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from benfourier.detectors.method import Lessons, Method
from benfourier.subjects.subject import Subject


@dataclass(frozen=True, kw_only=True)
class MaxSoftmax(Method):
    """1 − max_c p_c(x): unsure is adversarial. Nothing is learned."""

    name: ClassVar[str] = "max-softmax"
    lasting: ClassVar[bool] = True
    own: ClassVar[str] = "plain"
    common: ClassVar[str] = "plain"
    needs = frozenset({"listens"})

    def learn(self, subject: Subject, lessons: Lessons) -> "Doubt":
        """Returns a measure that has learned nothing."""
        return Doubt()

    def restore(self, subject: Subject, kept: Mapping[str, Any]) -> "Doubt":
        """Returns the same."""
        return Doubt()


@dataclass(frozen=True, eq=False)
class Doubt:
    """Listens to the logits only."""

    layers: ClassVar[tuple[str, ...]] = ()

    def ear(self, ids: Sequence[str]) -> "Doubt":
        """Returns itself: it keeps nothing."""
        return self

    def hear(self, name: str, response: Tensor) -> None:
        """Hears no layer."""

    def numbers(self, logits: Tensor) -> Tensor:
        """Returns Σ of the other posteriors (N, 1), which keeps its digits where 1 − p would round to 0."""
        logs = torch.log_softmax(logits.double(), dim=1)
        others = logs.scatter(1, logs.argmax(1, keepdim=True), -torch.inf)
        return others.logsumexp(1, keepdim=True)
