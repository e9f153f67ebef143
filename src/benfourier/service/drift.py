"""Whether recent scores still look like those on which the threshold was set."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benfourier.theory.ks import asymptotic_p, distances

LEAST = 30  # fewer scores say nothing
DOUBT = 0.001  # p below which the page calls the stream changed


@dataclass(frozen=True)
class Told:
    """The two-sample Kolmogorov-Smirnov test of recent scores against the calibration scores.

    Args:
        scores: how many recent ones there are.
        distance: D; NaN while there are too few.
        p: probability of such a distance if nothing has changed; NaN while there are too few.
    """

    scores: int
    distance: float
    p: float

    @property
    def state(self) -> str:
        """In a word: "waiting", "steady" or "changed"."""
        return "waiting" if math.isnan(self.p) else "changed" if self.p < DOUBT else "steady"


class Drift:
    """The last scores of a stream.

    Args:
        calibration: scores on which the threshold was set.
        window: how many recent ones are kept.
    """

    def __init__(self, calibration: NDArray[np.float64], window: int) -> None:
        self._calibration = calibration
        self._recent: deque[float] = deque(maxlen=window)
        self._told: Told | None = None

    def add(self, scores: Iterable[float]) -> None:
        """Takes scores in the order in which they came."""
        self._recent.extend(float(score) for score in scores)
        self._told = None

    def tell(self) -> Told:
        """Returns the test's outcome now."""
        if self._told is None:
            self._told = self._test()
        return self._told

    def _test(self) -> Told:
        count = len(self._recent)
        if count < LEAST:
            return Told(count, math.nan, math.nan)
        distance = float(distances(np.array(self._recent), self._calibration))
        p = float(asymptotic_p(min(distance, 1.0), count, len(self._calibration)))
        return Told(count, distance, min(max(p, 0.0), 1.0))
