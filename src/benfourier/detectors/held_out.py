"""How well numbers tell held-out examples apart, to choose an option by."""

import numpy as np
import torch
from numpy.typing import NDArray

from benfourier.data.draws import lot
from benfourier.data.examples import Examples
from benfourier.data.splits import folds
from benfourier.detectors.rows import Rows

FOLDS = 3
SOURCES = 200  # source images that take part in a choice


def some(examples: Examples, seed: int, most: int = SOURCES) -> Examples:
    """Returns the examples of a few sources, drawn from those with an adversarial twin.

    Sets that share most of their sources, as the folds of one set do, get most of the few in common.
    """
    won = torch.stack(list(examples.success.values())).any(0).nonzero().flatten().tolist()
    return examples.take(np.sort(sorted(won, key=lambda row: lot(seed, examples.ids[row]))[:most]))


def auroc(numbers: NDArray[np.float64], rows: Rows, seed: int) -> float:
    """Returns the AUROC of a logistic regression on sources that it was not fitted to, mean over folds.

    Args:
        numbers: (N, D), in the place of the rows' own.
        rows: which of them are adversarial, and their sources; every source has both kinds.
        seed: of the folds.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    found = []
    for fold in folds(rows.sources, np.zeros(len(rows), np.int64), FOLDS, seed=seed):
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        model.fit(numbers[fold.train], rows.adversarial[fold.train])
        found.append(roc_auc_score(rows.adversarial[fold.test], model.decision_function(numbers[fold.test])))
    return float(np.mean(found))
