"""Option values, tried on a few of the examples."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benfourier.data.examples import Examples
from benfourier.data.splits import folds, hash_rank
from benfourier.detectors.extractor import Extractor
from benfourier.detectors.feature_cache import feature_table
from benfourier.detectors.features import FeatureTable, has_adversarial_twin
from benfourier.detectors.heads import mean_auroc
from benfourier.detectors.method import FitData, Method
from benfourier.errors import FitError
from benfourier.models.classifier import Classifier

FOLDS = 3
SOURCES = 200  # source images that take part in a choice
EXPENSIVE = 50  # source images where a value may cost a thousand steps for each
ROUNDING = 1e-9  # by which a feature may miss its limit


def few_sources(examples: Examples, seed: int, most: int = SOURCES) -> Examples:
    """Returns the examples of a few sources, drawn from those with an adversarial twin."""
    # Sets that share most of their sources, as the folds of one set do, share most of the few.
    rows = has_adversarial_twin(examples).nonzero().flatten().tolist()
    if not rows:
        raise FitError("there are no adversarial examples to choose an option by; set the option to a value")
    return examples.take(np.sort(sorted(rows, key=lambda row: hash_rank(seed, examples.ids[row]))[:most]))


def held_out_auroc(features: NDArray[np.float64], table: FeatureTable, seed: int) -> float:
    """Returns the mean AUROC of a logistic regression on sources that it was not fitted to."""
    # The features (N, D) take the place of the table's own; every source of the table has both kinds.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rounds = folds(table.sources, np.zeros(len(table), np.int64), FOLDS, seed=seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return mean_auroc(model, features, table.adversarial, rounds)


def best_value(
    method: Method, classifier: Classifier, data: FitData, trials: Mapping[float, Extractor], label: str, limit: float
) -> float:
    """Returns the value whose one feature separates EXPENSIVE of the examples best, by AUROC; the first of equals."""
    # A head that learns which way is adversarial makes as much of 0.1 as of 0.9; head "plain" does not. The trials are
    # made in their order, until most benign images reach the limit, which the feature cannot exceed.
    from sklearn.metrics import roc_auc_score

    few, aurocs = few_sources(data.examples, method.seed, EXPENSIVE), {}
    for value, extractor in trials.items():
        table = feature_table(classifier, extractor, few, f"{label} {value:g}", data.show_progress, data.cache)
        auroc = float(roc_auc_score(table.adversarial, table.features[:, 0].numpy()))
        aurocs[value] = auroc if method.head_options.kind == "plain" else max(auroc, 1 - auroc)
        if float((table.benign >= limit * (1 - ROUNDING)).double().mean()) > 0.5:
            break
    return max(aurocs, key=lambda value: aurocs[value])
