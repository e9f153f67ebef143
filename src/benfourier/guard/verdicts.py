"""The verdicts of a guard: label, score, accepted or rejected and why."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Reason(StrEnum):
    """Why an image is rejected."""

    NONE = ""  # it is accepted
    ADVERSARIAL = "adversarial"  # the detector's score is above its threshold
    UNFAMILIAR = "unfamiliar"  # it is not like the images that the guard knows


@dataclass(frozen=True)
class Verdict:
    """The verdict on one image."""

    label: int  # the network's class, also where the image is rejected
    accepted: bool  # False if the image is rejected
    reason: Reason  # why it is rejected
    score: float  # higher is more adversarial
    threshold: float  # a score above it is rejected
    # share of clean images that look at least as bad, an upper bound: at most a share a of them has p ≤ a
    p_value: float
    name: str  # of the class, or its number if the classes have no names

    def __bool__(self) -> bool:
        raise TypeError("a verdict is neither true nor false; ask for .accepted")

    def __str__(self) -> str:
        word, sign = (f"rejected, {self.reason}", ">") if self.reason else (self.name, "≤")
        score = f"score {self.score:.6g}"
        if self.reason != Reason.UNFAMILIAR:
            score += f" {sign} {self.threshold:.6g}"
        return f"{word}, {score}, p {self.p_value:.3g}"


@dataclass(frozen=True, eq=False)
class Verdicts:
    """The verdicts on N images, in the order of the images. A slice of it is again a Verdicts."""

    label: NDArray[np.int64]  # (N,), as in Verdict
    accepted: NDArray[np.bool_]  # (N,)
    reason: NDArray[np.str_]  # values of Reason, (N,)
    score: Floats  # (N,), always finite
    unfamiliarity: Floats  # score of the other rule, (N,): how far an image is from those that the guard knows
    p_value: Floats  # (N,)
    threshold: float
    logits: Floats  # of the network, (N, classes)
    features: Floats  # of the detector, from which the score is computed, (N, D)
    classes: tuple[str, ...] | None = None  # their names; None if they have none

    def __len__(self) -> int:
        return len(self.label)

    def __bool__(self) -> bool:
        raise TypeError("verdicts are neither true nor false; ask for .accepted.all(), or for their number with len()")

    @overload
    def __getitem__(self, place: int) -> Verdict: ...

    @overload
    def __getitem__(self, place: slice) -> "Verdicts": ...

    def __getitem__(self, place: int | slice) -> "Verdict | Verdicts":
        if isinstance(place, slice):
            columns = ("label", "accepted", "reason", "score", "unfamiliarity", "p_value", "logits", "features")
            return replace(self, **{name: getattr(self, name)[place] for name in columns})
        label = int(self.label[place])
        return Verdict(
            label=label,
            accepted=bool(self.accepted[place]),
            reason=Reason(self.reason[place]),
            score=float(self.score[place]),
            threshold=self.threshold,
            p_value=float(self.p_value[place]),
            name=self.classes[label] if self.classes and label < len(self.classes) else str(label),
        )

    def __iter__(self) -> Iterator[Verdict]:
        return (self[place] for place in range(len(self)))

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def __repr__(self) -> str:
        return f"Verdicts({len(self)} images, {int((~self.accepted).sum())} rejected, threshold {self.threshold:.6g})"

    @property
    def names(self) -> list[str]:
        """Names of the labels, or their numbers if the classes have no names; also of rejected images."""
        return [verdict.name for verdict in self]
