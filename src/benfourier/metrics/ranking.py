"""Metrics of scores, for one sample or for many weightings of it at once, as a bootstrap needs them.

Weights are (draws, N), one weight per row; None weighs every row once. All metrics return (draws,).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benfourier.metrics.scores import Floats, Rows, ScoreSample

Weights = NDArray[np.float64] | None
SampleMetric = Callable[[ScoreSample, Weights], Floats]
# Rates of false alarms of a stored ROC curve: even steps, and finer ones towards 0 for a logarithmic axis.
ROC_RATES: Floats = np.unique(np.concatenate([np.linspace(0, 1, 101), np.geomspace(1e-3, 1, 61)]))


def auroc(sample: ScoreSample, weights: Weights = None) -> Floats:
    """Returns the probability that an adversarial image scores above a benign one, ties counted half."""
    order, ends = _ranks(sample.scores)
    benign, adversarial = _by_kind(sample, weights, order)
    # per group of equal scores: its adversarial weight times the benign weight below, and half of that beside it
    benign_up_to = np.cumsum(benign, axis=1)[:, ends]
    adversarial_up_to = np.cumsum(adversarial, axis=1)[:, ends]
    below = np.concatenate([np.zeros((len(benign), 1)), benign_up_to[:, :-1]], axis=1)
    adversarial_here = np.diff(adversarial_up_to, axis=1, prepend=0)
    area = (adversarial_here * (below + benign_up_to) / 2).sum(axis=1)
    return _ratio(area, benign_up_to[:, -1] * adversarial_up_to[:, -1])


def aupr(sample: ScoreSample, weights: Weights = None) -> Floats:
    """Returns the average precision; adversarial images are the positive class."""
    order, ends = _ranks(-sample.scores)
    benign, adversarial = _by_kind(sample, weights, order)
    caught, alarms = np.cumsum(adversarial, axis=1)[:, ends], np.cumsum(benign, axis=1)[:, ends]
    precision = _ratio(caught, caught + alarms)
    return _ratio((np.diff(caught, axis=1, prepend=0) * np.nan_to_num(precision)).sum(axis=1), caught[:, -1])


def accuracy(sample: ScoreSample, weights: Weights = None) -> Floats:
    """Returns the share of all images on the right side of 0.5; the scores are posteriors."""
    each = _weights(sample, weights)
    hits = (sample.scores > 0.5) == sample.adversarial
    return _ratio((each * hits).sum(axis=1), each.sum(axis=1))


def over_folds(metric: SampleMetric, folds: Rows) -> SampleMetric:
    """Returns the metric: mean of another over folds, since the scores of different fits cannot be compared.

    Folds (N,) in which the metric does not exist are left out.
    """
    rows = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]

    def mean(sample: ScoreSample, weights: Weights = None) -> Floats:
        each = _weights(sample, weights)
        values = np.stack([metric(sample.take(part), each[:, part]) for part in rows])
        exists = np.isfinite(values)
        return _ratio(np.where(exists, values, 0.0).sum(axis=0), exists.sum(axis=0).astype(float))

    return mean


def roc(scores: Floats, folds: Rows) -> Floats:
    """Returns the share of adversarial images caught at each of ROC_RATES; over folds (N,) the mean of their curves.

    Scores are (3, N): of clean, noisy and attacked images.
    """
    curves = []
    for fold in np.unique(folds):
        clean, noisy, adversarial = scores[:, folds == fold].astype(np.float64)
        benign = np.sort(np.concatenate([clean, noisy]))[::-1]
        allowed = np.floor(ROC_RATES * len(benign) + 1e-9).astype(int)  # benign images above the threshold, at most
        thresholds = np.append(benign, -np.inf)[allowed]
        curves.append((adversarial[:, None] > thresholds).mean(axis=0))
    return np.asarray(np.mean(curves, axis=0))


def _ranks(scores: Floats) -> tuple[Rows, Rows]:
    """Rows in ascending order of scores, and the last place of every group of equal ones."""
    order = np.argsort(scores, kind="stable")
    ascending = scores[order]
    return order, np.flatnonzero(np.append(ascending[1:] != ascending[:-1], True))


def _by_kind(sample: ScoreSample, weights: Weights, order: Rows) -> tuple[Floats, Floats]:
    """Benign and adversarial weights (draws, N), in that order of the rows."""
    each = _weights(sample, weights)[:, order]
    adversarial = sample.adversarial[order]
    return each * ~adversarial, each * adversarial


def _weights(sample: ScoreSample, weights: Weights) -> Floats:
    return np.ones((1, len(sample.scores))) if weights is None else weights


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Part / whole, NaN where whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0))
