"""Confidence intervals of rates: how many of how many."""

import math

from scipy.special import betaincinv

from benfourier.errors import OptionError, check_whole
from benfourier.store.records import Estimate

LEVEL = 0.95  # probability with which every interval of the package holds the truth


def clopper_pearson(hits: int, trials: int) -> tuple[float, float]:
    """Returns the interval that holds a rate with at least 95 % probability (Clopper & Pearson 1934)."""
    hits, trials = check_whole("hits", hits, least=0), check_whole("trials", trials)
    if hits > trials:
        raise OptionError(f"hits is {hits}; it must be at most the number of trials, {trials}")
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return low, high


def rate_of(count: int, of: int) -> Estimate:
    """Returns a share with its exact binomial interval at 95 %; NaN of nothing."""
    return Estimate(count / of, *clopper_pearson(count, of)) if of else Estimate(math.nan, math.nan, math.nan)
