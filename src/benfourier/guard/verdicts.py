"""The verdicts of a guard: label, score, accepted or rejected."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Verdict:
    """The verdict on one image."""

    label: int  # the network's class, also where the image is rejected
    accepted: bool  # False if the image is rejected as adversarial
    score: float  # higher is more adversarial
    threshold: float  # a score above it is rejected
    name: str  # of the class, or its number if the classes have no names

    def __str__(self) -> str:
        word, sign = (self.name, "≤") if self.accepted else ("rejected", ">")
        return f"{word}, score {self.score:.6g} {sign} {self.threshold:.6g}"


@dataclass(frozen=True, eq=False)
class Verdicts:
    """The verdicts on N images, in the order of the images. A slice of it is again a Verdicts."""

    label: NDArray[np.int64]  # (N,), as in Verdict
    accepted: NDArray[np.bool_]  # (N,)
    score: NDArray[np.float64]  # (N,), always finite
    threshold: float
    logits: NDArray[np.float64]  # of the network, (N, classes)
    features: NDArray[np.float64]  # of the detector, from which the score is computed, (N, D)
    classes: tuple[str, ...] | None = None  # their names; None if they have none

    def __len__(self) -> int:
        return len(self.label)

    @overload
    def __getitem__(self, place: int) -> Verdict: ...

    @overload
    def __getitem__(self, place: slice) -> "Verdicts": ...

    def __getitem__(self, place: int | slice) -> "Verdict | Verdicts":
        if isinstance(place, slice):
            columns = ("label", "accepted", "score", "logits", "features")
            return replace(self, **{name: getattr(self, name)[place] for name in columns})
        label = int(self.label[place])
        name = self.classes[label] if self.classes and label < len(self.classes) else str(label)
        return Verdict(label, bool(self.accepted[place]), float(self.score[place]), self.threshold, name)

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
