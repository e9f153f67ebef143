"""Scores as posteriors: a sigmoid fitted to held-out scores (Platt 1999)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FLAT = 1e-6  # the least slope, per deviation of the scores


@dataclass(frozen=True)
class Sigmoid:
    """P(adversarial) = 1 / (1 + exp(−(slope · score + offset)))."""

    slope: float
    offset: float

    def posterior(self, scores: Floats) -> Floats:
        """Returns the posteriors, (N,)."""
        from scipy.special import expit

        return np.asarray(expit(self.slope * scores + self.offset), np.float64)


def sigmoid_of(scores: Floats, adversarial: NDArray[np.bool_]) -> Sigmoid:
    """Returns the sigmoid that fits held-out scores best, with Platt's softened targets."""
    from sklearn.linear_model import LogisticRegression

    bad, good = int(adversarial.sum()), int((~adversarial).sum())
    target = np.where(adversarial, (bad + 1) / (bad + 2), 1 / (good + 2))
    centre, width = float(np.median(scores)), float(scores.std()) or 1.0
    column = ((scores - centre) / width)[:, None]
    # a soft target is the same image seen twice, once of each kind
    model = LogisticRegression(C=1e6, max_iter=1000).fit(
        np.concatenate([column, column]),
        np.repeat([1, 0], len(scores)),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    # where a detector is worse than chance the posterior is flat, but it never falls with the score
    slope = max(float(model.coef_[0, 0]), FLAT) / width
    return Sigmoid(slope, float(model.intercept_[0]) - slope * centre)
