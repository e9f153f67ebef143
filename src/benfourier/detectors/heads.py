"""Heads: features in, one score per row out. scikit-learn fits them, plain formulas score."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.splits import Fold
from benfourier.detectors.features import FeatureTable, Floats, mean_auroc, source_folds
from benfourier.detectors.state import ArrayRule
from benfourier.errors import FitError, check_number, check_whole

COSTS = (0.1, 1.0, 10.0, 100.0)
WIDTHS = (0.1, 0.3, 1.0, 3.0)  # multiples of gamma "scale"
COMPONENTS = (1, 2, 4, 8)  # of a mixture
BLOCK = 2**23  # values of the SVM's kernel at once
RARE = 0.001  # share of held-out benign images that may lie in the far field
TAIL = 0.2  # share of them from which the tail is extrapolated, if they are few
MARGIN = 1.0
KERNEL_ROWS = 20_000  # up to here the kernel is computed at once, ten times faster; it takes 3.2 GB at most
CACHE = 1000  # megabytes of kernel values that a larger fit holds
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
    """Turns features into a score; higher is more adversarial. Subclasses are frozen dataclasses: see state.py."""

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


@dataclass(frozen=True, eq=False)
class Svm(Head):
    """RBF support vector machine, Σ_s w_s exp(−γ‖z − v_s‖²) + b, with a far field.

    Far from every support vector that sum is the bias, whatever the image. So where the largest kernel value is below
    τ, a term that grows with the distance is added; docs/detectors.md says how τ is found.
    """

    vectors: Annotated[Tensor, ArrayRule("S D")]  # support vectors, scaled
    weights: Annotated[Tensor, ArrayRule("S")]  # signed dual coefficients
    bias: float  # added to the sum
    gamma: Annotated[float, partial(check_number, above=0, most=1e9)]  # of the kernel
    shift: Annotated[Tensor, ArrayRule("D")]  # subtracted from the features
    scale: Annotated[Tensor, ArrayRule("D", above=0)]  # divides them then
    log_tau: float = -1e300  # log of the kernel value below which a row is far; −infinity is written as −1e300
    lift: float = 0.0  # by how much a far row is raised at least

    @classmethod
    def fit(cls, options: HeadOptions, table: FeatureTable) -> tuple[Self, Facts]:
        """Returns the machine; C and γ are as given, or as cross-validation by source image prefers them."""
        from sklearn.svm import SVC

        data, shift, scale = scale_features(options.scaling, table.features)
        usual = 1 / (data.shape[1] * max(float(data.var()), 1e-12))  # gamma "scale"
        costs = COSTS if options.C == "cv" else (float(options.C),)
        gammas = tuple(usual * width for width in WIDTHS)
        if options.gamma != "cv":
            gammas = (usual if options.gamma == "scale" else float(options.gamma),)
        cost, gamma, facts = costs[0], gammas[0], {}
        if len(costs) * len(gammas) > 1:
            parts = source_folds(table, options.seed)
            aurocs = svm_aurocs(data, table.adversarial, parts, costs, gammas)
            cost, gamma = max(aurocs, key=lambda pair: aurocs[pair])
            facts = {"cross-validated AUROC": aurocs[cost, gamma]}
        if len(data) <= KERNEL_ROWS:
            model = SVC(C=cost, kernel="precomputed").fit(kernel_matrix(data, data, gamma), table.adversarial)
        else:
            model = SVC(C=cost, gamma=gamma, cache_size=CACHE).fit(data, table.adversarial)
        vectors, weights = torch.from_numpy(data[model.support_]), torch.from_numpy(model.dual_coef_[0].copy())
        machine = cls(vectors, weights, float(model.intercept_[0]), gamma, shift, scale)
        return machine, {"C": cost, "gamma": gamma, **facts}

    def score(self, features: Tensor) -> Tensor:
        """Returns the decision plus the far-field term, (N,)."""
        decision, nearest = self.parts(features)
        return decision + self.far(nearest)

    def far(self, nearest: Tensor) -> Tensor:
        """Returns the far-field term (N,) of rows with those logs of the largest kernel value: 0 where near."""
        depth = self.log_tau - nearest
        return torch.where(depth > 0, self.lift + depth, torch.zeros_like(depth))

    def parts(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the decision (N,), equal to scikit-learn's, and the log of the largest kernel value (N,)."""
        rows, lengths = (features.double() - self.shift) / self.scale, self.vectors.square().sum(1)
        assert rows.shape[1:] == self.vectors.shape[1:]
        decisions, nearest = [], []
        for part in torch.split(rows, max(1, BLOCK // max(1, len(self.vectors)))):
            squared = torch.addmm(lengths, part, self.vectors.T, alpha=-2) + part.square().sum(1, keepdim=True)
            logs = -self.gamma * squared.clamp(min=0)  # (rows, S)
            decisions.append(logs.exp() @ self.weights + self.bias)
            nearest.append(logs.max(1).values)
        return torch.cat(decisions), torch.cat(nearest)

    def with_held_out(self, benign: Tensor, fitted: Tensor) -> Self:
        """Returns the machine with its far field beyond all but a thousandth of the held-out benign rows."""
        # Far rows are raised above the highest scores of near ones, which are among the fitted rows.
        decision, nearest = self.parts(benign)
        highest = max(float(self.parts(fitted)[0].max()), float(decision.max()))
        lift = max(0.0, highest - self.bias) + MARGIN
        return replace(self, log_tau=far_limit(nearest, self.weights), lift=lift)

    def facts(self) -> Facts:
        """Returns bias, number of support vectors and log τ."""
        return {"bias": self.bias, "support vectors": len(self.vectors), "tau": self.log_tau}


def svm_aurocs(
    data: Floats, adversarial: NDArray[np.bool_], parts: Sequence[Fold], costs: Sequence[float], gammas: Sequence[float]
) -> dict[tuple[float, float], float]:
    """Returns the AUROC on held-out sources, the mean over folds, of every pair of C and γ."""
    from sklearn.metrics import roc_auc_score
    from sklearn.svm import SVC

    aurocs: dict[tuple[float, float], list[float]] = {pair: [] for pair in product(costs, gammas)}
    for fold in parts:
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


@dataclass(frozen=True, eq=False)
class Logistic(Head):
    """A logistic regression; its score is the log of the odds."""

    weights: Annotated[Tensor, ArrayRule("D")]
    bias: float  # added to the sum
    shift: Annotated[Tensor, ArrayRule("D")]  # subtracted from the features
    scale: Annotated[Tensor, ArrayRule("D", above=0)]  # divides them then

    @classmethod
    def fit(cls, options: HeadOptions, table: FeatureTable) -> tuple[Self, Facts]:
        """Returns the regression; C is as given, or as cross-validation by source image prefers it."""
        from sklearn.linear_model import LogisticRegression

        data, shift, scale = scale_features(options.scaling, table.features)
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

    roots: Annotated[Tensor, ArrayRule("T", dtype=torch.int64, above=-1)]  # node at which each tree begins
    feature: Annotated[Tensor, ArrayRule("nodes", dtype=torch.int64, above=-1)]  # column that a node looks at
    threshold: Annotated[Tensor, ArrayRule("nodes")]  # rows at or below it go left
    left: Annotated[Tensor, ArrayRule("nodes", dtype=torch.int64, above=-1)]  # next node on the left, or itself
    right: Annotated[Tensor, ArrayRule("nodes", dtype=torch.int64, above=-1)]  # next node on the right, or itself
    value: Annotated[Tensor, ArrayRule("nodes")]  # what a leaf adds
    depth: Annotated[int, partial(check_whole, least=0, most=10_000)]  # steps after which every row is at a leaf
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
        # scikit-learn has no public way to its nodes; a test holds this one against `decision_function`.
        trees = [predictor.nodes for (predictor,) in model._predictors]
        roots = np.cumsum([0] + [len(tree) for tree in trees[:-1]])
        nodes, first = np.concatenate(trees), np.repeat(roots, [len(tree) for tree in trees])
        leaf, itself = nodes["is_leaf"].astype(bool), np.arange(len(nodes))
        feature = np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64)
        left, right = (np.where(leaf, itself, first + nodes[side]).astype(np.int64) for side in ("left", "right"))
        threshold, value = np.where(leaf, 0.0, nodes["num_threshold"]), np.where(leaf, nodes["value"], 0.0)
        depth, start = int(nodes["depth"].max()), float(np.ravel(model._baseline_prediction)[0])
        columns = {"feature": feature, "threshold": threshold, "left": left, "right": right, "value": value}
        tensors: Any = {name: torch.from_numpy(column) for name, column in {"roots": roots, **columns}.items()}
        return cls(**tensors, depth=depth, start=start), {"trees": len(trees)}

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

    log_weights: Annotated[Tensor, ArrayRule("K")]  # log of each component's weight
    means: Annotated[Tensor, ArrayRule("K D")]  # of scaled features
    factors: Annotated[Tensor, ArrayRule("K D", "K D D")]  # of precisions: diagonals, or F with precision F Fᵀ
    shift: Annotated[Tensor, ArrayRule("D")]  # subtracted from the features
    scale: Annotated[Tensor, ArrayRule("D", above=0)]  # divides them then

    needs_adversarial: ClassVar[bool] = False

    @classmethod
    def fit(cls, options: HeadOptions, table: FeatureTable) -> tuple[Self, Facts]:
        """Returns the mixture with the number and shape of components that BIC prefers."""
        from sklearn.mixture import GaussianMixture

        data, shift, scale = scale_features(options.scaling, table.clean)
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

    needs_adversarial: ClassVar[bool] = False

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


# by the name that options and files give it
HEADS: dict[str, type[Head]] = {kind.__name__.lower(): kind for kind in (Svm, Logistic, Boosted, Mixture, Plain)}


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


def scale_features(scaling: str, features: Tensor) -> tuple[Floats, Tensor, Tensor]:
    """Returns scaled features, what is subtracted from each column, and what divides it; constant ones stay."""
    shift = torch.zeros(features.shape[1], dtype=torch.float64)
    scale = torch.ones_like(shift)
    if scaling == "standard":
        shift, scale = features.mean(0), features.std(0, correction=0)
    elif scaling == "min-max":
        shift, scale = features.amin(0), features.amax(0) - features.amin(0)
    least = torch.finfo(torch.float64).eps * features.abs().amax(0)
    scale = torch.where(scale > 8 * least, scale, torch.ones_like(scale))
    return ((features - shift) / scale).numpy(), shift, scale
