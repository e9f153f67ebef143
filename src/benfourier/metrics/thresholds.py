"""Thresholds at a chosen false-alarm rate, from scores of held-out clean images.

Of n such scores the ⌈(n + 1)(1 − rate)⌉-th smallest is the threshold, and a higher score is an alarm. If clean images
to come are exchangeable with these, the chance of a false alarm is at most the rate (Vovk 2005; Papadopoulos 2002).

Several rules together have one p-value: the rank of an image's best place under any rule. For an image x and a rule r,
k_r(x) counts the held-out images with scores of at least x's, and k(x) = min_r k_r(x); c_r,i and c_i are the same for
the held-out image i, counted among the others. Then p(x) = (1 + #{i: c_i ≤ k(x), if x were held out too}) / (n + 1).
All with c_i < k count. Of those with c_i = k, x beats the ones that have it from x's best rule A, so at most the others
count: #{i: c_i = k = min_{r≠A} c_r,i}, and p takes the largest of these numbers over A. So P(p ≤ rate) ≤ rate; for one
rule it is the threshold above.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.errors import InputError, OptionError
from benfourier.metrics.intervals import LEVEL, clopper_pearson

Floats = NDArray[np.float64]
SLACK = 1e-9


@dataclass(frozen=True)
class Threshold:
    """Above which score an image is rejected, and what is known of the false alarms."""

    value: float  # a score above it is an alarm
    rate: float  # false-alarm rate that was asked for
    images: int  # held-out clean images
    alarms: int  # how many of them are rejected
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
            f"images are rejected, {low:.2%} to {high:.2%} at {LEVEL:.0%}"
        )


def threshold_at(rate: float, scores: ArrayLike) -> Threshold:
    """Returns the threshold at a false-alarm rate, from scores of n held-out clean images that nothing was fitted to.

    Raises OptionError for a rate below 1 / (n + 1), for which the scores are too few.
    """
    held = np.asarray(scores, np.float64)
    if held.ndim != 1 or not held.size or not np.isfinite(held).all():
        raise InputError(f"scores have shape {held.shape}; they must be finite, one per held-out clean image")
    return JointRules((held,)).threshold(rate)


@dataclass(frozen=True, eq=False)
class JointRules:
    """Several scores of the same n held-out clean images, by rule, as one test."""

    scores: tuple[Floats, ...]  # of each rule, (n,)

    def p_values(self, scores: Sequence[Floats]) -> Floats:
        """Returns the p-value of each of N images from its scores by every rule, (N,) each; 1 / (n + 1) at least."""
        counts = [_at_least(mine, new) for mine, new in zip(self.scores, scores, strict=True)]
        return np.asarray(self._by_count[np.min(counts, axis=0)], np.float64)

    def thresholds(self, rate: float) -> tuple[float, ...]:
        """Returns the score of each rule above which p is at most the rate.

        Raises OptionError for a rate that the images are too few for.
        """
        check_enough(rate, len(self.scores[0]), len(self.scores))
        slack = SLACK / len(self._by_count)  # the rate is rounded in binary; that must not cost an image
        most = min(int((self._by_count <= rate + slack).sum()), len(self.scores[0])) - 1
        return tuple(float(np.sort(each)[::-1][most]) for each in self.scores)

    def threshold(self, rate: float) -> Threshold:
        """Returns that of the first rule, with the alarms of all of them together."""
        values, count = self.thresholds(rate), len(self.scores[0])
        alarms = int(np.any([each > value for each, value in zip(self.scores, values, strict=True)], axis=0).sum())
        return Threshold(values[0], float(rate), count, alarms, clopper_pearson(alarms, count))

    @cached_property
    def _by_count(self) -> Floats:
        """The p-value for k(x) = 0, 1 and so on to n."""
        counts = np.array([_at_least(each, each) - 1 for each in self.scores])  # c_r,i, (rules, n)
        best, n = counts.min(0), counts.shape[1]
        others = [np.delete(counts, rule, 0).min(0, initial=n) for rule in range(len(counts))]
        equal = np.max([np.bincount(best[best == other], minlength=n + 1) for other in others], axis=0)
        below = np.concatenate([[0], np.cumsum(np.bincount(best, minlength=n))])
        return np.asarray((1 + below + equal) / (n + 1), np.float64)


def _at_least(held_out: Floats, scores: Floats) -> NDArray[np.intp]:
    """How many of the held-out scores are at least as high as each of the others."""
    return len(held_out) - np.searchsorted(np.sort(held_out), scores, side="left")


def check_enough(rate: Any, images: int, rules: int = 1) -> None:
    """Raises OptionError for what is no false-alarm rate, or needs more held-out clean images than there are."""
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.floating) or not 0 < rate < 1:
        raise OptionError(f"false_alarm_rate is {rate!r}; it must be a number between 0 and 1, such as 0.05")
    needed = least_images(float(rate), rules)
    if images < needed:
        raise OptionError(
            f"false_alarm_rate is {rate:g} and there are {images} held-out clean images; that rate needs at least "
            f"{needed}: give more, or a rate of at least {rules}/{images + 1} = {rules / (images + 1):.4g}"
        )


def least_images(rate: float, rules: int = 1) -> int:
    """Returns the least n of rules / (n + 1) ≤ rate: so many held-out clean images allow a false-alarm rate."""
    return max(rules, math.ceil(rules / rate - SLACK) - 1)
