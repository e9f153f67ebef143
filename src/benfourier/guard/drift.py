"""Drift: whether recent scores still look like those of the calibration."""

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benfourier.metrics.ks import asymptotic_p, distances

MIN_SCORES = 30  # the asymptotic p means little for fewer
ALARM_P = 0.001  # a smaller p is called a changed stream


@dataclass(frozen=True)
class DriftTest:
    """Two-sample Kolmogorov-Smirnov test of recent scores against the calibration scores."""

    scores: int  # number of recent scores
    distance: float = math.nan  # D; NaN while there are too few scores
    p: float = math.nan  # probability of such a distance if nothing has changed; NaN while there are too few scores

    @property
    def state(self) -> Literal["waiting", "steady", "changed"]:
        """The result in a word."""
        return "waiting" if math.isnan(self.p) else "changed" if self.p < ALARM_P else "steady"


class Drift:
    """The last scores of a stream, as many as the window holds, compared with the calibration scores."""

    def __init__(self, calibration: NDArray[np.float64], window: int) -> None:
        self._calibration = calibration
        self._recent: deque[float] = deque(maxlen=window)

    def add(self, scores: NDArray[np.float64]) -> None:
        """Adds scores, oldest first."""
        self._recent.extend(scores.tolist())

    def test(self) -> DriftTest:
        """Returns the test of the scores in the window."""
        count = len(self._recent)
        if count < MIN_SCORES:
            return DriftTest(count)
        distance = distances(list(self._recent), self._calibration)
        return DriftTest(count, float(distance), float(asymptotic_p(distance, count, len(self._calibration))))
