"""Metrics with intervals: the bootstrap draws source images, so that twins stay together."""

from collections.abc import Iterator

import numpy as np

from benfourier.errors import InputError, check_whole
from benfourier.evaluation.metrics import Metric
from benfourier.evaluation.sample import Floats, Sample
from benfourier.store.records import Estimate

DRAWS = 1000
LEVEL = 0.95
CELLS = 2**23  # weights at once


def estimate(metric: Metric, sample: Sample, *, seed: int = 0, draws: int = DRAWS) -> Estimate:
    """Returns a metric of a sample with the percentile interval of draws of its source images."""
    drawn = np.concatenate([metric(sample, weights) for weights in drawings(sample.sources, seed, draws)])
    return interval(float(metric(sample, None)[0]), drawn)


def difference(metric: Metric, one: Sample, other: Sample, *, seed: int = 0, draws: int = DRAWS) -> Estimate:
    """Returns one sample's metric less another's over the same images: both see the same draws."""
    if one.sources != other.sources or not np.array_equal(one.adversarial, other.adversarial):
        raise InputError("the two samples are of different images; a paired difference needs the same rows in both")
    drawn = np.concatenate(
        [metric(one, weights) - metric(other, weights) for weights in drawings(one.sources, seed, draws)]
    )
    return interval(float(metric(one, None)[0] - metric(other, None)[0]), drawn)


def drawings(sources: tuple[str, ...], seed: int, draws: int) -> Iterator[Floats]:
    """Yields weights (some draws, rows): how often each row's source image was drawn, as many draws as there are."""
    check_whole("draws", draws)
    names, places = np.unique(np.array(sources), return_inverse=True)
    random = np.random.default_rng(seed)
    size = max(1, CELLS // max(1, len(sources)))
    for start in range(0, draws, size):
        count = min(size, draws - start)
        yield random.multinomial(len(names), np.full(len(names), 1 / len(names)), size=count)[:, places].astype(float)


def interval(value: float, drawn: Floats) -> Estimate:
    """Returns percentiles of the draws in which the metric exists; a value alone where none does."""
    kept = drawn[np.isfinite(drawn)]
    if not len(kept):
        return Estimate(value, value, value)
    low, high = np.quantile(kept, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high))
