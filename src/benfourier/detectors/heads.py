"""Heads: features in, one score per row out. scikit-learn fits them, plain formulas score."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.splits import Fold, folds
from benfourier.detectors import svm
from benfourier.detectors.features import FeatureTable
from benfourier.detectors.state import State, record_from_state, record_state
from benfourier.errors import FitError

COSTS = (0.1, 1.0, 10.0, 100.0)
WIDTHS = (0.1, 0.3, 1.0, 3.0)  # multiples of gamma "scale"
COMPONENTS = (1, 2, 4, 8)  # of a mixture
FOLDS = 3
SOURCES = 500  # at most so many source images take part in cross-validation
Facts = dict[str, Any]


@dataclass(frozen=True)
class HeadOptions:
    """What a head is fitted with."""

    kind: str
    scaling: str
    C: float | str
    gamma: float | str
    seed: int
    name: str  # of the method, for messages


class Head(ABC):
    """Turns features into a score; higher is more adversarial. Subclasses are frozen dataclasses."""

    differentiable: ClassVar[bool] = True
    needs_adversarial: ClassVar[bool] = True  # False if it can be fitted to clean images alone

    @classmethod
    @abstractmethod
    def fit(cls, options: HeadOptions, table: FeatureTable) -> tuple[Self, Facts]:
        """Returns the head fitted to a table, and what was chosen on the way."""

    @abstractmethod
    def score(self, features: Tensor) -> Tensor:
        """Returns one score per row, (N,)."""

    def with_held_out(self, benign: Tensor, fitted: Tensor) -> Self:
        """Returns the head after its last step on held-out benign rows; most heads have none."""
        return self

    def facts(self) -> Facts:
        """Returns what a summary of the fit should say of the head."""
        return {}

    def state(self) -> State:
        """Returns what a file holds."""
        return record_state(self)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Returns the head of a state."""
        return record_from_state(cls, state)


@dataclass(frozen=True, eq=False)
class Svm(Head):
    """RBF support vector machine with a far field: see svm.py."""

    vectors: Tensor  # support vectors (S, D), scaled
    weights: Tensor  # signed dual coefficients (S,)
    bias: float  # added to the sum
    gamma: float  # of the kernel
    shift: Tensor  # subtracted from the features, (D,)
    scale: Tensor  # divides them then, (D,)
    log_tau: float = -1e300  # log of the kernel value below which a row is far; −infinity is written as −1e300
    lift: float = 0.0  # by how much a far row is raised at least

    @classmethod
    def fit(cls, options: HeadOptions, table: FeatureTable) -> tuple[Self, Facts]:
        """Returns the machine; C and γ are as given, or as cross-validation by source image prefers them."""
        shift, scale = scaling(options.scaling, table.features)
        data = ((table.features - shift) / scale).numpy()
        usual = 1 / (data.shape[1] * max(float(data.var()), 1e-12))  # gamma "scale"
        costs = COSTS if options.C == "cv" else (float(options.C),)
        gammas = tuple(usual * width for width in WIDTHS)
        if options.gamma != "cv":
            gammas = (usual if options.gamma == "scale" else float(options.gamma),)
        cost, gamma, facts = costs[0], gammas[0], {}
        if len(costs) * len(gammas) > 1:
            parts = source_folds(table, options.seed)
            aurocs = svm.held_out_aurocs(data, table.adversarial, parts, costs, gammas)
            cost, gamma = max(aurocs, key=lambda pair: aurocs[pair])
            facts = {"cross-validated AUROC": aurocs[cost, gamma]}
        model = svm.fit_svm(data, table.adversarial, cost, gamma)
        vectors, weights = torch.from_numpy(data[model.support_]), torch.from_numpy(model.dual_coef_[0].copy())
        machine = cls(vectors, weights, float(model.intercept_[0]), gamma, shift, scale)
        return machine, {"C": cost, "gamma": gamma, **facts}

    def score(self, features: Tensor) -> Tensor:
        """Returns the decision plus the far-field term, (N,)."""
        decision, nearest = self.parts(features)
        return decision + self.far(nearest)

    def decision(self, features: Tensor) -> Tensor:
        """Returns the machine's own score (N,), equal to scikit-learn's decision function."""
        return self.parts(features)[0]

    def far(self, nearest: Tensor) -> Tensor:
        """Returns the far-field term (N,) of rows with those logs of the largest kernel value: 0 where near."""
        depth = self.log_tau - nearest
        return torch.where(depth > 0, self.lift + depth, torch.zeros_like(depth))

    def parts(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the decision (N,) and the log of the largest kernel value (N,)."""
        rows = (features.double() - self.shift) / self.scale
        return svm.decision_and_nearest(rows, self.vectors, self.weights, self.bias, self.gamma)

    def with_held_out(self, benign: Tensor, fitted: Tensor) -> Self:
        """Returns the machine with its far field beyond all but a thousandth of the held-out benign rows."""
        # Far rows are raised above the highest scores of near ones, which are among the fitted rows.
        decision, nearest = self.parts(benign)
        highest = max(float(self.decision(fitted).max()), float(decision.max()))
        lift = max(0.0, highest - self.bias) + svm.MARGIN
        return replace(self, log_tau=svm.far_limit(nearest, self.weights), lift=lift)

    def facts(self) -> Facts:
        """Returns bias, number of support vectors and log τ."""
        return {"bias": self.bias, "support vectors": len(self.vectors), "tau": self.log_tau}


@dataclass(frozen=True, eq=False)
class Logistic(Head):
    """A logistic regression; its score is the log of the odds."""

    weights: Tensor  # (D,)
    bias: float  # added to the sum
    shift: Tensor  # subtracted from the features, (D,)
    scale: Tensor  # divides them then, (D,)

    @classmethod
    def fit(cls, options: HeadOptions, table: FeatureTable) -> tuple[Self, Facts]:
        """Returns the regression; C is as given, or as cross-validation by source image prefers it."""
        from sklearn.linear_model import LogisticRegression

        shift, scale = scaling(options.scaling, table.features)
        data = ((table.features - shift) / scale).numpy()
        costs = COSTS if options.C == "cv" else (float(options.C),)
        models = [LogisticRegression(C=cost, max_iter=2000) for cost in costs]
        if len(models) > 1:
            rounds = source_folds(table, options.seed)
            models = [max(models, key=lambda model: mean_auroc(model, data, table.adversarial, rounds))]
        model = models[0].fit(data, table.adversarial)
        weights = torch.from_numpy(model.coef_[0].astype(np.float64).copy())
        return cls(weights, float(model.intercept_[0]), shift, scale), {"C": model.C}

    def score(self, features: Tensor) -> Tensor:
        """Returns the log of the odds, (N,)."""
        return (features.double() - self.shift) / self.scale @ self.weights + self.bias


@dataclass(frozen=True, eq=False)
class Boosted(Head):
    """Boosted trees whose leaves add up to the log of the odds; the nodes of all trees stand in one row."""

    roots: Tensor  # node at which each tree begins, (T,)
    feature: Tensor  # column that a node looks at, (nodes,)
    threshold: Tensor  # rows at or below it go left, (nodes,)
    left: Tensor  # next node to the left, (nodes,); a leaf names itself
    right: Tensor  # next node to the right, (nodes,); a leaf names itself
    value: Tensor  # what a leaf adds, (nodes,)
    depth: int  # steps after which every row is at a leaf
    start: float  # score before any tree

    differentiable: ClassVar[bool] = False

    @classmethod
    def fit(cls, options: HeadOptions, table: FeatureTable) -> tuple[Self, Facts]:
        """Returns the trees; they need no scaling and have no C."""
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits

        model = HistGradientBoostingClassifier(random_state=options.seed, early_stopping=False)
        with threadpool_limits(1, "openmp"):  # its threads spin while they wait: beside other work that costs minutes
            model.fit(table.features.numpy(), table.adversarial)
        head = cls.from_sklearn(model)
        return head, {"trees": len(head.roots)}

    @classmethod
    def from_sklearn(cls, model: Any) -> Self:
        """Returns a fitted HistGradientBoostingClassifier of two classes as arrays."""
        # scikit-learn has no public way to its nodes; a test holds this one against `decision_function`.
        trees = [predictor.nodes for (predictor,) in model._predictors]
        roots = np.cumsum([0] + [len(tree) for tree in trees[:-1]])
        nodes, first = np.concatenate(trees), np.repeat(roots, [len(tree) for tree in trees])
        leaf, itself = nodes["is_leaf"].astype(bool), np.arange(len(nodes))
        feature = np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64)
        left, right = (np.where(leaf, itself, first + nodes[side]).astype(np.int64) for side in ("left", "right"))
        threshold, value = np.where(leaf, 0.0, nodes["num_threshold"]), np.where(leaf, nodes["value"], 0.0)
        depth, start = int(nodes["depth"].max()), float(np.ravel(model._baseline_prediction)[0])
        array = torch.from_numpy
        return cls(
            array(roots), array(feature), array(threshold), array(left), array(right), array(value), depth, start
        )

    def score(self, features: Tensor) -> Tensor:
        """Returns the log of the odds, (N,), without a gradient."""
        rows = features.detach().double()
        place = self.roots.expand(len(rows), -1)  # (N, T)
        for _ in range(self.depth):
            goes_left = rows.gather(1, self.feature[place]) <= self.threshold[place]
            place = torch.where(goes_left, self.left[place], self.right[place])
        return self.start + self.value[place].sum(1)


@dataclass(frozen=True, eq=False)
class Mixture(Head):
    """A Gaussian mixture fitted to clean images only; the score is minus the log of the likelihood."""

    log_weights: Tensor  # log of each component's weight, (K,)
    means: Tensor  # (K, D), of scaled features
    factors: Tensor  # of the precisions: (K, D) on the diagonal, or (K, D, D) with precision = F Fᵀ
    shift: Tensor  # subtracted from the features, (D,)
    scale: Tensor  # divides them then, (D,)

    needs_adversarial: ClassVar[bool] = False

    @classmethod
    def fit(cls, options: HeadOptions, table: FeatureTable) -> tuple[Self, Facts]:
        """Returns the mixture with the number and shape of components that BIC prefers."""
        from sklearn.mixture import GaussianMixture

        clean = table.clean
        shift, scale = scaling(options.scaling, clean)
        data = ((clean - shift) / scale).numpy()
        shapes = ("diag", "full") if len(data) > data.shape[1] else ("diag",)  # full ones need many images
        regular = 1e-3 * max(float(data.var(axis=0).mean()), 1e-12)  # keeps components from closing on one image
        models = [
            GaussianMixture(count, covariance_type=shape, reg_covar=regular, random_state=options.seed).fit(data)
            for shape in shapes
            for count in COMPONENTS
            if 2 * count <= len(data)
        ]
        best = min(models, key=lambda model: float(model.bic(data)))
        log_weights, means = torch.from_numpy(np.log(best.weights_)), torch.from_numpy(best.means_.copy())
        factors = torch.from_numpy(best.precisions_cholesky_.copy())
        facts = {"components": best.n_components, "covariances": best.covariance_type}
        return cls(log_weights, means, factors, shift, scale), facts

    def score(self, features: Tensor) -> Tensor:
        """Returns −log p, (N,)."""
        rows = ((features.double() - self.shift) / self.scale).unsqueeze(1) - self.means  # (N, K, D)
        if self.factors.ndim == 2:
            standard, log_det = rows * self.factors, self.factors.log().sum(1)
        else:
            standard = torch.einsum("nkd,kde->nke", rows, self.factors)
            log_det = self.factors.diagonal(dim1=1, dim2=2).log().sum(1)
        constant = self.means.shape[1] / 2 * math.log(2 * math.pi) + self.scale.log().sum()
        return constant - torch.logsumexp(self.log_weights + log_det - standard.square().sum(2) / 2, 1)


@dataclass(frozen=True, eq=False)
class Plain(Head):
    """The one feature of a row is its score."""

    @classmethod
    def fit(cls, options: HeadOptions, table: FeatureTable) -> tuple[Self, Facts]:
        """Returns the head, or raises FitError unless there is one feature."""
        if table.features.shape[1] != 1:
            raise FitError(f"{options.name} gives {table.features.shape[1]} features; head 'plain' takes one")
        return cls(), {}

    def score(self, features: Tensor) -> Tensor:
        """Returns the feature, (N,)."""
        assert features.shape[1] == 1
        return features.double()[:, 0]


HEADS: Mapping[str, type[Head]] = MappingProxyType(
    {"svm": Svm, "logistic": Logistic, "boosted": Boosted, "mixture": Mixture, "plain": Plain}
)


def fit_head(options: HeadOptions, table: FeatureTable, held_out: FeatureTable | None = None) -> tuple[Head, Facts]:
    """Returns the head that options ask for, fitted to a table, and facts for the summary."""
    # The held-out rows are of other sources, for the head's last step.
    kind = HEADS[options.kind]
    if kind.needs_adversarial and not table.adversarial.any():
        raise FitError(
            f"there are no adversarial examples; head {options.kind!r} needs benign and adversarial ones: attack more "
            "images, or set head='mixture', which is fitted to clean images alone"
        )
    if table.adversarial.all():
        raise FitError("all examples are adversarial; fitting needs benign ones")
    head, facts = kind.fit(options, table)
    if held_out is not None:
        head = head.with_held_out(held_out.benign, table.features)
    return head, {**facts, **head.facts()}


def scaling(name: str, features: Tensor) -> tuple[Tensor, Tensor]:
    """Returns what is subtracted from each column, and what divides it then; constant columns are left alone."""
    shift = torch.zeros(features.shape[1], dtype=torch.float64)
    scale = torch.ones_like(shift)
    if name == "standard":
        shift, scale = features.mean(0), features.std(0, correction=0)
    elif name == "min-max":
        shift, scale = features.amin(0), features.amax(0) - features.amin(0)
    least = torch.finfo(torch.float64).eps * features.abs().amax(0)
    return shift, torch.where(scale > 8 * least, scale, torch.ones_like(scale))


def mean_auroc(model: Any, data: NDArray[np.float64], adversarial: NDArray[np.bool_], rounds: Iterable[Fold]) -> float:
    """Returns the AUROC of a scikit-learn model on rows that it was not fitted to, the mean over folds."""
    from sklearn.model_selection import cross_val_score

    pairs = [(fold.train, fold.test) for fold in rounds]
    return float(cross_val_score(model, data, adversarial, scoring="roc_auc", cv=pairs, error_score="raise").mean())


def held_out_auroc(features: NDArray[np.float64], table: FeatureTable, seed: int) -> float:
    """Returns the mean AUROC of a logistic regression on sources that it was not fitted to."""
    # The features (N, D) take the place of the table's own; every source of the table has both kinds.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rounds = folds(table.sources, np.zeros(len(table), np.int64), FOLDS, seed=seed)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return mean_auroc(model, features, table.adversarial, rounds)


def source_folds(table: FeatureTable, seed: int) -> tuple[Fold, ...]:
    """Returns folds by source image, over SOURCES of them at most; both kinds are in every part of each."""
    drawn = set(np.random.default_rng(seed).permutation(sorted(set(table.sources)))[:SOURCES])
    places = np.array([place for place, source in enumerate(table.sources) if source in drawn])
    attacked = {source for source, bad in zip(table.sources, table.adversarial, strict=True) if bad}
    sources, count = [table.sources[place] for place in places], len(attacked & drawn)
    if count < FOLDS:
        raise FitError(f"{count} source images have an adversarial twin; cross-validation needs {FOLDS}")
    stratify = len(drawn - attacked) >= FOLDS
    classes = [int(source in attacked) if stratify else 1 for source in sources]
    return tuple(Fold(places[fold.train], places[fold.test]) for fold in folds(sources, classes, FOLDS, seed=seed))
