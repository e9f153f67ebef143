"""Intervals by bootstrap: source images are drawn, so that twins stay together."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benfourier.errors import InputError
from benfourier.metrics.intervals import LEVEL
from benfourier.metrics.ranking import SampleMetric
from benfourier.metrics.scores import Floats, ScoreSample
from benfourier.store.records import Estimate

DRAWS = 1000
MAX_WEIGHTS = 2**23  # at once: 64 MB


@dataclass(frozen=True)
class Bootstrap:
    """Draws of source images with replacement; the same seed draws the same images for every metric."""

    seed: int = 0
    draws: int = DRAWS

    def estimate(self, metric: SampleMetric, sample: ScoreSample) -> Estimate:
        """Returns a metric of a sample with its percentile interval."""
        values = np.concatenate([metric(sample, weights) for weights in self.resamples(sample.sources)])
        return interval(float(metric(sample, None)[0]), values)

    def difference(self, metric: SampleMetric, one: ScoreSample, other: ScoreSample) -> Estimate:
        """Returns one sample's metric minus another's over the same images; both see the same draws."""
        if one.sources != other.sources or not np.array_equal(one.adversarial, other.adversarial):
            raise InputError("the two samples are of different images; a paired difference needs the same rows in both")
        values = [metric(one, weights) - metric(other, weights) for weights in self.resamples(one.sources)]
        return interval(float(metric(one, None)[0] - metric(other, None)[0]), np.concatenate(values))

    def resamples(self, sources: tuple[str, ...]) -> Iterator[Floats]:
        """Yields weights (some draws, rows): how often each row's source image was drawn."""
        names, places = np.unique(np.array(sources), return_inverse=True)
        random = np.random.default_rng(self.seed)
        size = max(1, MAX_WEIGHTS // max(1, len(sources)))
        even = np.full(len(names), 1 / len(names))
        for start in range(0, self.draws, size):
            counts = random.multinomial(len(names), even, size=min(size, self.draws - start))
            yield counts[:, places].astype(float)


def interval(value: float, values: Floats) -> Estimate:
    """Returns a value with percentiles of the draws in which the metric exists; the value alone where none does."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Estimate(value, value, value)
    low, high = np.quantile(finite, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, float(low), float(high))
