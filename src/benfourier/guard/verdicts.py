"""What a guard says of images."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Verdict:
    """What a guard says of one image.

    Args:
        label: the network's class, also where the image is rejected.
        accepted: False if the image is rejected as adversarial.
        score: higher is more adversarial.
        threshold: above which a score is rejected.
        name: of the class, or its number if the classes have no names.
    """

    label: int
    accepted: bool
    score: float
    threshold: float
    name: str

    def __str__(self) -> str:
        told, sign = (self.name, "≤") if self.accepted else ("rejected", ">")
        return f"{told}, score {self.score:.6g} {sign} {self.threshold:.6g}"


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What a guard says of N images, in the order in which they were given.

    Args:
        label: int64 (N,), the network's classes, also of images that are rejected.
        accepted: bool (N,); False where an image is rejected as adversarial.
        score: float64 (N,); higher is more adversarial.
        threshold: above which a score is rejected.
        classes: names of the classes; None if they have none.
    """

    label: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    score: NDArray[np.float64]
    threshold: float
    classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, place: int) -> Verdict:
        label = int(self.label[place])
        return Verdict(label, bool(self.accepted[place]), float(self.score[place]), self.threshold, self._name(label))

    def __iter__(self) -> Iterator[Verdict]:
        return (self[place] for place in range(len(self)))

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def __repr__(self) -> str:
        return f"Verdicts({len(self)} images, {int((~self.accepted).sum())} rejected, threshold {self.threshold:.6g})"

    @property
    def names(self) -> list[str]:
        """The network's classes by name, or by number if they have no names, also of images that are rejected."""
        return [self._name(int(label)) for label in self.label]

    def _name(self, label: int) -> str:
        return self.classes[label] if self.classes and label < len(self.classes) else str(label)
