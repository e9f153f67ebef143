"""Confidence intervals of rates: how many of how many."""

from scipy.special import betaincinv

from benfourier.errors import OptionError, check_number, check_whole


def clopper_pearson(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Returns the interval that holds a rate with at least that probability (Clopper & Pearson 1934)."""
    hits, trials = check_whole("hits", hits, least=0), check_whole("trials", trials)
    if hits > trials:
        raise OptionError(f"hits is {hits}; it must be at most the number of trials, {trials}")
    check_number("level", level, above=0, below=1)
    tail = (1 - level) / 2
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return low, high
