"""Scores of held-out images: the input of every metric."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benfourier.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class ScoreSample:
    """Scores with the kind and the source of their images."""

    scores: Floats  # (N,), higher is more adversarial
    adversarial: Bools  # (N,)
    sources: tuple[str, ...]  # source image of each row; twins share it

    def __post_init__(self) -> None:
        scores, adversarial = np.asarray(self.scores, np.float64), np.asarray(self.adversarial, np.bool_)
        if not scores.shape == adversarial.shape == (len(self.sources),):
            problem = f"there are {scores.shape} scores, {adversarial.shape} kinds and {len(self.sources)} sources"
            raise InputError(f"{problem}; each row needs one of each")
        if np.isnan(scores).any():
            raise InputError(f"score {int(np.isnan(scores).argmax())} is NaN; scores must be numbers")
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "adversarial", adversarial)

    def take(self, rows: Rows) -> "ScoreSample":
        """Returns some of the rows."""
        return ScoreSample(self.scores[rows], self.adversarial[rows], tuple(self.sources[row] for row in rows))


@dataclass(frozen=True)
class FoldCalibration:
    """How the scores of one fitted detector are read."""

    posterior: Callable[[Floats], Floats]  # from scores to posteriors
    thresholds: Mapping[str, float]  # by rate of false alarms


@dataclass(frozen=True, eq=False)
class TargetScores:
    """Scores of the sources that one attack succeeded on."""

    source: str  # label of the data
    attack: str  # label
    ids: tuple[str, ...]  # source images
    folds: Rows  # which fit scored each, (N,); scores of different fits cannot be compared
    scores: Floats  # (3, N): of the clean, noisy and attacked images
    baseline: Floats | None  # the same of the baseline detector; None if this is the baseline
    tried: frozenset[str]  # source images that the attack was tried on
    calibrations: Mapping[int, FoldCalibration]  # by fold

    def __len__(self) -> int:
        return len(self.ids)

    def sample_of(self, scores: Floats) -> ScoreSample:
        """Returns scores (3, N) of these images as one sample: clean, then noisy, then attacked images."""
        return ScoreSample(scores.reshape(-1), np.repeat([False, False, True], len(self)), self.ids * 3)

    def above_threshold(self, rate: str) -> Bools:
        """Returns which scores are above the threshold of their fit, (3, N)."""
        return above_threshold(self.scores, self.folds, self.calibrations, rate)

    def posteriors(self) -> Floats:
        """Returns the posteriors (3, N), each by the sigmoid of its fit."""
        result = np.empty_like(self.scores)
        for fold in np.unique(self.folds):
            rows = self.folds == fold
            result[:, rows] = self.calibrations[int(fold)].posterior(self.scores[:, rows])
        return result


class FoldedScores(NamedTuple):
    """Scores of some images, and which fit scored each: scores of different fits cannot be compared."""

    scores: Floats  # (M,)
    folds: Rows  # (M,)


@dataclass(frozen=True, eq=False)
class OutcomeScores:
    """Scores of all attacks that a detector was tested on."""

    targets: tuple[TargetScores, ...]  # one per attack; metrics see only those with enough successes
    # of clean images that a table counts false alarms on: "misclassified", and changes of `vocabulary.CHANGES`
    clean: Mapping[str, "FoldedScores"]
    calibrations: Mapping[int, FoldCalibration]  # by fold


def above_threshold(scores: Floats, folds: Rows, calibrations: Mapping[int, FoldCalibration], rate: str) -> Bools:
    """Returns which scores (..., N) are above the threshold of their fit."""
    limits = np.array([calibrations[int(fold)].thresholds[rate] for fold in folds])
    return np.asarray(scores > limits)
