"""Scores of held-out images, row by row: what every metric is computed from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benfourier.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Sample:
    """Scores with what is known of their images.

    Args:
        scores: float64 (N,), higher is more adversarial.
        adversarial: bool (N,).
        sources: source image of each row; twins share it.
    """

    scores: Floats
    adversarial: Bools
    sources: tuple[str, ...]

    def __post_init__(self) -> None:
        scores = np.asarray(self.scores, np.float64)
        adversarial = np.asarray(self.adversarial, np.bool_)
        if not scores.shape == adversarial.shape == (len(self.sources),):
            raise InputError(
                f"there are {scores.shape} scores, {adversarial.shape} kinds and {len(self.sources)} sources; "
                "each row needs one of each"
            )
        if np.isnan(scores).any():
            raise InputError(f"score {int(np.isnan(scores).argmax())} is NaN; scores must be numbers")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "adversarial", adversarial)

    def __len__(self) -> int:
        return len(self.scores)

    def take(self, rows: NDArray[np.intp]) -> "Sample":
        """Returns some of the rows."""
        return Sample(self.scores[rows], self.adversarial[rows], tuple(self.sources[row] for row in rows))

    @property
    def benign_count(self) -> int:
        """Number of benign rows."""
        return int((~self.adversarial).sum())

    @property
    def adversarial_count(self) -> int:
        """Number of adversarial rows."""
        return int(self.adversarial.sum())
