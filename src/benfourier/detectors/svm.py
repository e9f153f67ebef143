"""Numerics of the RBF support vector machine: kernel, fit, search of C and γ, closed-form decision, far field.

The decision is Σ_s w_s exp(−γ‖z − v_s‖²) + b. Far from every support vector that sum is the bias, whatever the image.
So where the largest kernel value is below τ, a term that grows with the distance is added; τ is such that held-out
benign images stay above it, and that all vectors together move the score by no more than the margin.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.splits import Fold

BLOCK = 2**23  # kernel values at once
RARE = 0.001  # share of held-out benign images that may lie in the far field
TAIL = 0.2  # share of them from which the tail is extrapolated, if they are few
MARGIN = 1.0
KERNEL_ROWS = 20_000  # up to here the kernel is computed at once, ten times faster; it takes 3.2 GB at most
CACHE = 1000  # megabytes of kernel values that a larger fit holds
Floats = NDArray[np.float64]


def fit_svm(data: Floats, adversarial: NDArray[np.bool_], cost: float, gamma: float) -> Any:
    """Returns scikit-learn's SVC, fitted to scaled rows (N, D)."""
    from sklearn.svm import SVC

    if len(data) <= KERNEL_ROWS:
        return SVC(C=cost, kernel="precomputed").fit(kernel_matrix(data, data, gamma), adversarial)
    return SVC(C=cost, gamma=gamma, cache_size=CACHE).fit(data, adversarial)


def held_out_aurocs(
    data: Floats, adversarial: NDArray[np.bool_], folds: Sequence[Fold], costs: Sequence[float], gammas: Sequence[float]
) -> dict[tuple[float, float], float]:
    """Returns the AUROC on held-out sources, the mean over folds, of every pair of C and γ."""
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import SVC

    aurocs: dict[tuple[float, float], list[float]] = {pair: [] for pair in product(costs, gammas)}
    for fold in folds:
        for gamma in gammas:
            inside = kernel_matrix(data[fold.train], data[fold.train], gamma)
            across = kernel_matrix(data[fold.test], data[fold.train], gamma)
            for cost in costs:
                model = SVC(C=cost, kernel="precomputed").fit(inside, adversarial[fold.train])
                scores = model.decision_function(across)
                aurocs[cost, gamma].append(float(roc_auc_score(adversarial[fold.test], scores)))
    return {pair: float(np.mean(values)) for pair, values in aurocs.items()}


def kernel_matrix(one: Floats, other: Floats, gamma: float) -> Floats:
    """Returns exp(−γ‖a − b‖²) for all pairs, computed in place where possible: it may take gigabytes."""
    # The product is torch's: OpenBLAS 0.3, NumPy's, crashes on A Aᵀ of 19 620 rows with two threads.
    values: Floats = (torch.from_numpy(one) @ torch.from_numpy(other).T).numpy()
    values *= 2 * gamma
    values -= gamma * (one * one).sum(axis=1)[:, None]
    values -= gamma * (other * other).sum(axis=1)
    np.minimum(values, 0, out=values)
    return np.exp(values, out=values)


def decision_and_nearest(
    rows: Tensor, vectors: Tensor, weights: Tensor, bias: float, gamma: float
) -> tuple[Tensor, Tensor]:
    """Returns the decision (N,) and the log of the largest kernel value (N,) of scaled rows (N, D), block by block."""
    assert rows.shape[1:] == vectors.shape[1:]
    lengths = vectors.square().sum(1)
    decisions, nearest = [], []
    for part in torch.split(rows, max(1, BLOCK // max(1, len(vectors)))):
        squared = part.square().sum(1, keepdim=True) + lengths - 2 * part @ vectors.T
        logs = -gamma * squared.clamp(min=0)  # (rows, S)
        decisions.append(logs.exp() @ weights + bias)
        nearest.append(logs.max(1).values)
    return torch.cat(decisions), torch.cat(nearest)


def far_limit(nearest: Tensor, weights: Tensor) -> float:
    """Returns log τ, from the logs of the largest kernel values of held-out benign rows."""
    blind = math.log(MARGIN / max(float(weights.abs().sum()), MARGIN))
    order = nearest.sort().values
    rare = float(order[math.floor(RARE * len(order))])  # all but RARE of the rows exceed it
    if RARE * len(order) < 1:  # too few rows to tell: their tail is extrapolated as an exponential one
        edge = float(order.quantile(TAIL))
        excess = float((edge - order[order <= edge]).mean())
        rare = min(rare, edge - excess * math.log(TAIL / RARE))
    return min(rare, blind)
