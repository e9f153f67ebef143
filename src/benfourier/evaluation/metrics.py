"""Metrics of scores, each for one sample or for many weightings of it at once (which is what a bootstrap asks for).

Weights are (draws, N), one weight per row; None weighs every row once. All return (draws,).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benfourier.evaluation.sample import Floats, Sample

Weights = NDArray[np.float64] | None
Metric = Callable[[Sample, Weights], Floats]


def auroc(sample: Sample, weights: Weights = None) -> Floats:
    """Returns the probability that an adversarial image scores above a benign one, ties counted half."""
    order, ends = _ranked(sample.scores)
    good, bad = _by_kind(sample, weights, order)
    # per group of equal scores: its adversarial weight times the benign weight below, and half of that beside it
    good_up_to = np.cumsum(good, axis=1)[:, ends]
    bad_up_to = np.cumsum(bad, axis=1)[:, ends]
    below = np.concatenate([np.zeros((len(good), 1)), good_up_to[:, :-1]], axis=1)
    bad_here = np.diff(bad_up_to, axis=1, prepend=0)
    area = (bad_here * (below + good_up_to) / 2).sum(axis=1)
    return _ratio(area, good_up_to[:, -1] * bad_up_to[:, -1])


def aupr(sample: Sample, weights: Weights = None) -> Floats:
    """Returns the average precision: adversarial images are what is looked for."""
    order, ends = _ranked(-sample.scores)
    good, bad = _by_kind(sample, weights, order)
    found, alarms = np.cumsum(bad, axis=1)[:, ends], np.cumsum(good, axis=1)[:, ends]
    precision = _ratio(found, found + alarms)
    return _ratio((np.diff(found, axis=1, prepend=0) * np.nan_to_num(precision)).sum(axis=1), found[:, -1])


def tpr_at(rate: float) -> Metric:
    """Returns the metric: share of adversarial images caught at that rate of false alarms on the benign ones.

    The threshold is the lowest at which no more than `rate` of the benign images are rejected.
    """

    def caught(sample: Sample, weights: Weights = None) -> Floats:
        order, ends = _ranked(-sample.scores)
        good, bad = _by_kind(sample, weights, order)
        alarms, found = np.cumsum(good, axis=1)[:, ends], np.cumsum(bad, axis=1)[:, ends]
        allowed = alarms <= rate * alarms[:, -1:] + 1e-12
        return _ratio((found * allowed).max(axis=1), found[:, -1])

    return caught


def above(threshold: float, *, adversarial: bool) -> Metric:
    """Returns the metric: share of the adversarial (or benign) images that score above a threshold fixed elsewhere."""

    def share(sample: Sample, weights: Weights = None) -> Floats:
        used = _weights(sample, weights) * (sample.adversarial == adversarial)
        return _ratio((used * (sample.scores > threshold)).sum(axis=1), used.sum(axis=1))

    return share


def accuracy(threshold: float) -> Metric:
    """Returns the metric: share of all images on the right side of a threshold fixed elsewhere."""

    def right(sample: Sample, weights: Weights = None) -> Floats:
        used = _weights(sample, weights)
        hits = (sample.scores > threshold) == sample.adversarial
        return _ratio((used * hits).sum(axis=1), used.sum(axis=1))

    return right


def over_folds(metric: Metric, folds: NDArray[np.intp]) -> Metric:
    """Returns the metric: mean of another over folds, since the scores of different machines cannot be compared.

    Args:
        metric: of the rows of one fold; folds in which it does not exist are left out.
        folds: fold of each row, (N,).
    """
    rows = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]

    def mean(sample: Sample, weights: Weights = None) -> Floats:
        used = _weights(sample, weights)
        each = np.stack([metric(sample.take(part), used[:, part]) for part in rows])
        known = np.isfinite(each)
        return _ratio(np.where(known, each, 0.0).sum(axis=0), known.sum(axis=0).astype(float))

    return mean


def _ranked(scores: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows in ascending order of scores, and the last place of every group of equal ones."""
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    return order, np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))


def _by_kind(sample: Sample, weights: Weights, order: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Benign and adversarial weights (draws, N), in that order of the rows."""
    used = _weights(sample, weights)[:, order]
    bad = sample.adversarial[order]
    return used * ~bad, used * bad


def _weights(sample: Sample, weights: Weights) -> Floats:
    return np.ones((1, len(sample))) if weights is None else weights


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Part / whole, NaN where there is nothing to divide by."""
    found: Floats = np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)
    return found
