"""Final classifiers: scikit-learn fits them, plain formulas score."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.splits import Fold, folds
from benfourier.detectors.linear import Logistic, Plain
from benfourier.detectors.method import Method
from benfourier.detectors.rows import Rows
from benfourier.detectors.svm import Svm
from benfourier.detectors.trees import Trees, trees_of
from benfourier.errors import FitError

COSTS = (0.1, 1.0, 10.0, 100.0)
WIDTHS = (0.1, 0.3, 1.0, 3.0)  # multiples of gamma "scale"
FOLDS = 3
SOURCES = 500  # at most so many source images take part in cross-validation
KERNEL_ROWS = 20_000  # up to here the kernel is computed at once, ten times faster; it takes 3.2 GB at most
CACHE = 1000  # megabytes of kernel values that a larger fit keeps
Floats = NDArray[np.float64]


class Classifier(Protocol):
    """Numbers in, one score per row out; higher is more adversarial."""

    differentiable: bool

    def score(self, numbers: Tensor) -> Tensor:
        """Returns one score per row, (N,)."""


KINDS: Mapping[str, type[Any]] = MappingProxyType({"svm": Svm, "logistic": Logistic, "boosted": Trees, "plain": Plain})


@dataclass(frozen=True)
class Trained:
    """A classifier and what is to be known of its fit."""

    classifier: Classifier
    facts: dict[str, Any]


def train(method: Method, rows: Rows) -> Trained:
    """Returns the final classifier that a method asks for, fitted to rows of both kinds."""
    if rows.adversarial.all() or not rows.adversarial.any():
        raise FitError("all examples are of one kind; fitting needs benign and adversarial ones: attack more images")
    if method.final == "plain":
        if rows.numbers.shape[1] != 1:
            raise FitError(f"{method.name} gives {rows.numbers.shape[1]} numbers; classifier 'plain' takes one")
        return Trained(Plain(), {})
    shift, scale = _scaling(method.scaling, rows.numbers)
    data = ((rows.numbers - shift) / scale).numpy()
    if method.final == "boosted":
        return _boosted(rows, method.seed)
    fit = _svm if method.final == "svm" else _logistic
    return fit(method, data, rows, shift, scale)


def _scaling(name: str, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """What is subtracted from each column, and what divides it then; columns that never change are left alone."""
    shift, scale = torch.zeros(numbers.shape[1], dtype=torch.float64), torch.ones(numbers.shape[1], dtype=torch.float64)
    if name == "standard":
        shift, scale = numbers.mean(0), numbers.std(0, correction=0)
    elif name == "min-max":
        shift, scale = numbers.amin(0), numbers.amax(0) - numbers.amin(0)
    least = torch.finfo(torch.float64).eps * numbers.abs().amax(0)
    return shift, torch.where(scale > 8 * least, scale, torch.ones_like(scale))


def _svm(method: Method, data: Floats, rows: Rows, shift: Tensor, scale: Tensor) -> Trained:
    from sklearn.svm import SVC

    chosen = _chosen(method, data, rows)
    if len(data) <= KERNEL_ROWS:
        kernel = _kernel(data, data, chosen["gamma"])
        model = SVC(C=chosen["C"], kernel="precomputed").fit(kernel, rows.adversarial)
    else:
        model = SVC(C=chosen["C"], gamma=chosen["gamma"], cache_size=CACHE).fit(data, rows.adversarial)
    machine = Svm(
        vectors=torch.from_numpy(data[model.support_]),
        weights=torch.from_numpy(model.dual_coef_[0].copy()),
        bias=float(model.intercept_[0]),
        gamma=chosen["gamma"],
        shift=shift,
        scale=scale,
    )
    return Trained(machine, {**chosen, "bias": machine.bias, "support vectors": len(machine.vectors)})


def _logistic(method: Method, data: Floats, rows: Rows, shift: Tensor, scale: Tensor) -> Trained:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    def held_out(cost: float) -> float:
        found = []
        for fold in _folds(rows, method.seed):
            scores = fitted(cost, fold.train).decision_function(data[fold.test])
            found.append(roc_auc_score(rows.adversarial[fold.test], scores))
        return float(np.mean(found))

    def fitted(cost: float, chosen: NDArray[np.intp]) -> Any:
        return LogisticRegression(C=cost, max_iter=2000).fit(data[chosen], rows.adversarial[chosen])

    cost = max(COSTS, key=held_out) if method.C == "cv" else float(method.C)
    model = fitted(cost, np.arange(len(rows)))
    weights = torch.from_numpy(model.coef_[0].astype(np.float64).copy())
    return Trained(Logistic(weights, float(model.intercept_[0]), shift, scale), {"C": cost})


def _boosted(rows: Rows, seed: int) -> Trained:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingClassifier(random_state=seed, early_stopping=False)
    with threadpool_limits(1, "openmp"):  # its threads spin while they wait: beside other work that costs minutes
        model.fit(rows.numbers.numpy(), rows.adversarial)
    trees = trees_of(model)
    return Trained(trees, {"trees": len(trees.roots)})


def _chosen(method: Method, data: Floats, rows: Rows) -> dict[str, Any]:
    """C and gamma, as given or as cross-validation by source image prefers them."""
    usual = 1 / (data.shape[1] * max(float(data.var()), 1e-12))
    costs = COSTS if method.C == "cv" else (float(method.C),)
    widths = tuple(usual * width for width in WIDTHS) if method.gamma == "cv" else (_gamma(method.gamma, usual),)
    if len(costs) * len(widths) == 1:
        return {"C": costs[0], "gamma": widths[0]}
    table = _auroc(data, rows, costs, widths, method.seed)
    best = max(table, key=lambda pair: table[pair])
    return {"C": best[0], "gamma": best[1], "cross-validated AUROC": table[best]}


def _gamma(given: float | str, usual: float) -> float:
    return usual if given == "scale" else float(given)


def _auroc(
    data: Floats, rows: Rows, costs: tuple[float, ...], widths: tuple[float, ...], seed: int
) -> dict[tuple[float, float], float]:
    """AUROC on held-out sources for every pair."""
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import SVC

    found: dict[tuple[float, float], list[float]] = {pair: [] for pair in product(costs, widths)}
    for fold in _folds(rows, seed):
        for width in widths:
            inside = _kernel(data[fold.train], data[fold.train], width)
            across = _kernel(data[fold.test], data[fold.train], width)
            for cost in costs:
                model = SVC(C=cost, kernel="precomputed").fit(inside, rows.adversarial[fold.train])
                scores = model.decision_function(across)
                found[cost, width].append(float(roc_auc_score(rows.adversarial[fold.test], scores)))
    return {pair: float(np.mean(values)) for pair, values in found.items()}


def _kernel(one: Floats, other: Floats, gamma: float) -> Floats:
    """exp(−γ‖a − b‖²) for all pairs, in place as far as it goes: it may take gigabytes.

    The product is torch's: OpenBLAS 0.3, NumPy's, crashes on A Aᵀ of 19 620 rows with two threads.
    """
    values: Floats = (torch.from_numpy(one) @ torch.from_numpy(other).T).numpy()
    values *= 2 * gamma
    values -= gamma * (one * one).sum(axis=1)[:, None]
    values -= gamma * (other * other).sum(axis=1)
    np.minimum(values, 0, out=values)
    return np.exp(values, out=values)


def _folds(rows: Rows, seed: int) -> tuple[Fold, ...]:
    """Folds by source image, over SOURCES of them at most; both kinds are in every part of each."""
    known = sorted(set(rows.sources))
    kept = set(np.random.default_rng(seed).permutation(known)[:SOURCES])
    places = np.array([place for place, source in enumerate(rows.sources) if source in kept])
    won = {source for source, bad in zip(rows.sources, rows.adversarial, strict=True) if bad}
    sources = [rows.sources[place] for place in places]
    if len(won & kept) < FOLDS:
        raise FitError(f"{len(won & kept)} source images have an adversarial twin; cross-validation needs {FOLDS}")
    lone = len(kept - won)
    classes = [int(source in won) if lone >= FOLDS else 1 for source in sources]
    return tuple(Fold(places[fold.train], places[fold.test]) for fold in folds(sources, classes, FOLDS, seed=seed))
