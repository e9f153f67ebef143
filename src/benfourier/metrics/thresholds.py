"""Thresholds at a chosen false-alarm rate, from scores of held-out clean images.

Of n such scores the ⌈(n + 1)(1 − rate)⌉-th smallest is the threshold, and a higher score is an alarm. If clean images
to come are exchangeable with these, the chance of a false alarm is at most the rate (Vovk 2005; Papadopoulos 2002).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from benfourier.errors import InputError, OptionError
from benfourier.metrics.intervals import LEVEL, clopper_pearson

SLACK = 1e-9  # a rate such as 0.05 is rounded in binary; that must not cost an image


@dataclass(frozen=True)
class Threshold:
    """Above which score an image is rejected, and what is known of the false alarms."""

    value: float  # a score above it is an alarm
    rate: float  # false-alarm rate that was asked for
    images: int  # held-out clean images
    alarms: int  # how many of them score above the value
    # Clopper-Pearson interval of alarms / images at 95 %. It holds the true rate with that probability or more,
    # although the value was chosen from the same images: the true rate of scores without ties has the law
    # Beta(alarms + 1, images − alarms), which gives the upper end and lies above the lower one.
    interval: tuple[float, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", tuple(self.interval))

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.value:.6g} for a false-alarm rate of {self.rate:g}: {self.alarms} of {self.images} held-out clean "
            f"images score above it, {low:.2%} to {high:.2%} at {LEVEL:.0%}"
        )


def threshold_at(rate: float, scores: ArrayLike) -> Threshold:
    """Returns the threshold at a false-alarm rate, from scores of n held-out clean images that nothing was fitted to.

    Raises OptionError for a rate below 1 / (n + 1), for which the scores are too few.
    """
    held = np.asarray(scores, np.float64)
    if held.ndim != 1 or not held.size or not np.isfinite(held).all():
        raise InputError(f"scores have shape {held.shape}; they must be finite, one per held-out clean image")
    check_enough(rate, len(held))
    rank = len(held) + 1 - math.floor((len(held) + 1) * rate + SLACK)  # ⌈(n + 1)(1 − rate)⌉, counted from 1
    value = float(np.sort(held)[max(rank, 1) - 1])
    alarms = int((held > value).sum())
    return Threshold(value, float(rate), len(held), alarms, clopper_pearson(alarms, len(held)))


def check_enough(rate: Any, images: int) -> None:
    """Raises OptionError for what is no false-alarm rate, or needs more held-out clean images than there are."""
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.floating) or not 0 < rate < 1:
        raise OptionError(f"false_alarm_rate is {rate!r}; it must be a number between 0 and 1, such as 0.05")
    needed = max(1, math.ceil(1 / rate - SLACK) - 1)  # the least n of 1 / (n + 1) ≤ rate
    if images < needed:
        raise OptionError(
            f"false_alarm_rate is {rate:g} and there are {images} held-out clean images; that rate needs at least "
            f"{needed}: give more, or a rate of at least 1/{images + 1} = {1 / (images + 1):.4g}"
        )
