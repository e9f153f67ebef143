"""C1, C2t and C2u: how an image bears noise, and steps towards another class (Hu 2019, arXiv:1910.07629).

C1 = ‖p(x) − p(x + σ·noise)‖₁. C2t and C2u are the steps x ← clip(x − η∇L(x)) that the label withstands, with the raw
gradient of L = CE(Z(x), t), t a random other class, or L = −CE(Z(x), ŷ).
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benfourier.data.images import content_ids
from benfourier.data.seeds import image_generator
from benfourier.detectors.extractor import Concatenated, Extractor, RunningExtractor
from benfourier.detectors.feature_cache import feature_table
from benfourier.detectors.features import few_sources, finite
from benfourier.detectors.method import FitData, Method, register_detector
from benfourier.detectors.state import ArrayRule, State, record_from_state
from benfourier.errors import ClassifierError, check_whole
from benfourier.models.classifier import Classifier
from benfourier.models.device import wide
from benfourier.models.forward import batch_size
from benfourier.models.module import frozen, logits_of, softmax
from benfourier.options import check_known_options, number, whole, word

CRITERIA = ("c1", "c2t", "c2u")
# Values to choose from, those of the authors among them. Large steps come first: small ones cost more.
GRIDS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "sigma": ("c1", (0.3, 0.1, 0.03, 0.01, 0.003)),
    "step_t": ("c2t", (0.5, 0.05, 0.005, 0.0005)),
    "step_u": ("c2u", (10.0, 3.0, 1.0, 0.1, 0.01)),
}
SOURCES = 50  # source images that values are tried on: a value may cost a thousand steps for each
ROUNDING = 1e-9  # by which a feature may miss its limit
MEMORY = 512 * 2**20  # bytes that a batch and its gradient may take


class Criterion(RunningExtractor):
    """One feature per image, which its pixels and the seed decide."""

    seed: int

    pixels_only: ClassVar[bool] = True  # draws belong to an image's pixels

    @property
    @abstractmethod
    def greatest(self) -> float:
        """What the feature cannot exceed."""

    @abstractmethod
    def values(self, classifier: Classifier, images: Tensor, logits: Tensor, draws: list[torch.Generator]) -> Tensor:
        """Returns the feature of each image, float64 (N,); images are on the classifier's device."""

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (N, 1)."""
        (criterion,) = self.feature_names()
        draws = [image_generator(self.seed, f"{criterion} {name}") for name in content_ids(images)]
        images = images.to(classifier.device, classifier.dtype)
        with torch.inference_mode(False), torch.no_grad(), frozen(classifier.module):
            finite(logits, ids)
            return self.values(classifier, images, logits, draws).unsqueeze(1)


@dataclass(frozen=True, eq=False)
class C1(Criterion):
    """How far noise moves the posteriors."""

    sigma: float  # standard deviation of the noise, for pixels from 0 to 1
    seed: int  # of the noise

    names: ClassVar[tuple[str, ...]] = ("c1",)
    greatest: ClassVar[float] = 2.0  # the L1 distance of two distributions without a class in common

    def values(self, classifier: Classifier, images: Tensor, logits: Tensor, draws: list[torch.Generator]) -> Tensor:
        """Returns ‖p(x) − p(x + σ·noise)‖₁, (N,)."""
        low, high = classifier.bounds
        noise = torch.stack([torch.randn(images.shape[1:], generator=draw) for draw in draws]).to(images)
        noisy = free_logits(classifier, images + self.sigma * (high - low) * noise)
        return (softmax(logits) - softmax(noisy)).abs().sum(1)


@dataclass(frozen=True, eq=False)
class C2(Criterion):
    """The log of the steps that a label withstands, towards another class (C2t) or away from its own (C2u)."""

    targeted: bool  # towards a random other class
    step: float  # times the gradient; like the radius for pixels from 0 to 1, whatever the classifier's bounds
    radius: float  # of the L∞ ball around the image
    cap: Annotated[int, partial(check_whole, most=1_000_000)]  # steps after which an image is given up
    seed: int  # of the other class

    def feature_names(self) -> tuple[str, ...]:
        """Returns the name of the criterion."""
        return ("c2t" if self.targeted else "c2u",)

    @property
    def greatest(self) -> float:
        """The log of the cap."""
        return math.log(self.cap)

    def values(self, classifier: Classifier, images: Tensor, logits: Tensor, draws: list[torch.Generator]) -> Tensor:
        """Returns the log of the number of steps, (N,)."""
        labels = logits.argmax(1)
        goals = labels
        if self.targeted:
            others = [int(torch.randint(1, logits.shape[1], (), generator=draw)) for draw in draws]
            goals = (labels + torch.tensor(others, device=labels.device)) % logits.shape[1]
        return wide(self.steps_to_flip(classifier, images, labels, goals)).log()

    def steps_to_flip(self, classifier: Classifier, images: Tensor, labels: Tensor, goals: Tensor) -> Tensor:
        """Returns the number of steps (N,) after which each label changes, or the cap where it does not."""
        # An image leaves the batch as soon as its label has changed, and the next one takes its place. Goals (N,) are
        # the classes that images are moved to, or away from.
        assert labels.shape == goals.shape == (len(images),)
        low, high = classifier.bounds
        reach, sign = self.radius * (high - low), 1 if self.targeted else -1
        rate = sign * self.step * (high - low) ** 2
        size = batch_size(classifier, images.shape[1:], gradients=True, memory=MEMORY)
        steps = torch.zeros(len(images), dtype=torch.int64, device=images.device)
        waiting = torch.arange(len(images), device=images.device)
        rows, moved = waiting[:0], images[:0]
        while len(rows) or len(waiting):
            free = size - len(rows)
            rows, moved = torch.cat([rows, waiting[:free]]), torch.cat([moved, images[waiting[:free]]])
            waiting = waiting[free:]
            answers, gradient = _labels_and_gradient(classifier, moved, goals[rows])
            # on the boundary another batch may see another label; one step is the least there is
            flipped = (answers != labels[rows]) & (steps[rows] > 0)
            first = images[rows]
            ahead = (moved - rate * gradient).clamp(low, high).clamp(first - reach, first + reach)
            steps[rows[~flipped]] += 1
            still = (ahead == moved).flatten(1).all(1)  # it would stand there for ever
            steps[rows[still & ~flipped]] = self.cap
            stay = ~flipped & (steps[rows] < self.cap)
            rows, moved = rows[stay], ahead[stay]
        return steps


def free_logits(classifier: Classifier, images: Tensor) -> Tensor:
    """Returns the logits (N, classes) of images that may lie beyond the bounds; gradients flow to the images."""
    layout = classifier.layer_list(tuple(images.shape[1:])).memory_format
    return logits_of(classifier.module(classifier.prepare(images, layout)), len(images))


def _labels_and_gradient(classifier: Classifier, images: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
    """The labels (N,), and the gradient (N, C, H, W) of each image's cross-entropy with its goal."""
    with torch.enable_grad():
        leaf = images.detach().clone().requires_grad_()
        logits = free_logits(classifier, leaf)
        if not logits.requires_grad:
            raise ClassifierError(
                "the module's logits have no gradient; c1c2 needs a module that works in floating tensors "
                "from images to logits, without detach or no_grad; or take c1c2:c1, which needs none"
            )
        loss = F.cross_entropy(logits, goals, reduction="sum")
        return logits.detach().argmax(1), torch.autograd.grad(loss, leaf)[0]


@dataclass(frozen=True, eq=False)
class GreatestRank(RunningExtractor):
    """The greatest rank of some criteria among benign images, one feature."""

    criteria: tuple[Criterion, ...]  # to rank
    benign: Annotated[Tensor, ArrayRule("B criteria")]  # their values of benign images

    names: ClassVar[tuple[str, ...]] = ("rank",)

    def state(self) -> State:
        """Returns the benign values, and the criteria with their names."""
        criteria = tuple({"kind": type(one).__name__, "state": one.state()} for one in self.criteria)
        return {"criteria": criteria, "benign": self.benign}

    @classmethod
    def from_state(cls, classifier: Classifier, state: State, supplied: Mapping[str, Any]) -> Self:
        """Returns the extractor of a state."""
        kinds: dict[str, type[Criterion]] = {"C1": C1, "C2": C2}
        criteria = tuple(record_from_state(kinds[one["kind"]], one["state"]) for one in state["criteria"])
        return record_from_state(cls, {**state, "criteria": criteria})

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (N, 1)."""
        values = [criterion.extract(classifier, images, logits, ids) for criterion in self.criteria]
        return self.finish(torch.cat(values, 1), ids)

    def cacheable_parts(self) -> tuple[Extractor, ...]:
        """Returns the criteria."""
        return self.criteria

    def finish(self, features: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the greatest rank, (N, 1)."""
        greatest = [criterion.greatest for criterion in self.criteria]
        return benign_ranks(features, self.benign, greatest).amax(1, keepdim=True)


def benign_ranks(values: Tensor, benign: Tensor, greatest: Sequence[float]) -> Tensor:
    """Returns for each value the share of benign ones below it, (N, D), in [0, 1]."""
    # Equal ones count half. Between benign values, and from the outermost to 0 and the greatest, the rank rises in a
    # straight line, so that larger values never rank alike unless all of them are benign ones. Values are (N, D),
    # benign ones (B, D).
    ranks = []
    for row, column, high in zip(values.double().T, benign.T, greatest, strict=True):
        known, counts = column.unique(return_counts=True)
        shares = (counts.cumsum(0) - counts.double() / 2) / len(benign)
        if known[0] > 0:
            known, shares = F.pad(known, (1, 0)), F.pad(shares, (1, 0))
        if known[-1] < high:
            known, shares = F.pad(known, (0, 1), value=high), F.pad(shares, (0, 1), value=1.0)
        ranks.append(_interpolate(row.contiguous(), known, shares))
    return torch.stack(ranks, 1)


def _interpolate(x: Tensor, places: Tensor, heights: Tensor) -> Tensor:
    """Heights at x, in straight lines between ascending places, and level beyond the outermost, as np.interp."""
    above = torch.searchsorted(places, x, right=True).clamp(1, len(places) - 1)
    below = above - 1
    slope = (heights[above] - heights[below]) / (places[above] - places[below])
    between = slope * (x - places[below]) + heights[below]
    return torch.where(x >= places[-1], heights[-1], torch.where(x < places[0], heights[0], between))


@register_detector
@dataclass(frozen=True, kw_only=True)
class C1C2(Method):
    """The three criteria, or one of them."""

    criteria: str = word("all", *CRITERIA)  # the ids c1c2:c1, c1c2:c2t and c1c2:c2u stand for the single ones
    # Sizes for pixels from 0 to 1, whatever the classifier's bounds; the examples choose where there is None.
    sigma: float | None = number(None, None, above=0)  # standard deviation of the noise
    step_t: float | None = number(None, None, above=0)  # times the gradient towards another class
    step_u: float | None = number(None, None, above=0)  # times the gradient away from the label
    radius: float = number(0.5, above=0)  # largest change of a pixel
    cap_t: int = whole(200)  # steps towards another class after which an image is given up
    cap_u: int = whole(1000)  # the same for steps away from the label

    id: ClassVar[str] = "c1c2"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (C1, C2, GreatestRank)
    authors_head: ClassVar[str] = "plain"
    variants: ClassVar[tuple[str, ...]] = CRITERIA

    @classmethod
    def variant(cls, word: str, options: Mapping[str, Any]) -> Self:
        """Returns the method with one criterion."""
        check_known_options(cls.id, options, sorted(cls.__dataclass_fields__))
        return cls(**{**options, "criteria": word})

    @property
    def needs(self) -> frozenset[str]:
        """Draws for C1 and C2t, gradients for C2t and C2u."""
        drawn = {"random"} if self.criteria != "c2u" else set()
        return frozenset(drawn | ({"gradients", "search"} if self.criteria != "c1" else set()))

    def fit_extractor(self, classifier: Classifier, data: FitData) -> Extractor:
        """Returns the criteria with noise and steps that separate the examples best."""
        criteria = []
        for option, (name, grid) in GRIDS.items():
            if self.criteria not in ("all", name):
                continue
            value = getattr(self, option)
            if value is None:
                trials = {tried: self._criterion(name, tried) for tried in grid}
                value = best_value(self, classifier, data, trials, f"{self.name}: {option}", trials[grid[0]].greatest)
            criteria.append(self._criterion(name, value))
        joined = criteria[0] if len(criteria) == 1 else Concatenated(tuple(criteria))
        if self.head_options.kind != "plain":
            return joined
        benign = replace(data.examples, adversarial={}, success={})
        table = feature_table(classifier, joined, benign, f"{self.name}: benign", data.show_progress)
        return GreatestRank(tuple(criteria), table.features)

    def _criterion(self, name: str, value: float) -> Criterion:
        if name == "c1":
            return C1(value, self.seed)
        targeted = name == "c2t"
        return C2(targeted, value, self.radius, self.cap_t if targeted else self.cap_u, self.seed)


def best_value(
    method: Method, classifier: Classifier, data: FitData, trials: Mapping[float, Extractor], label: str, limit: float
) -> float:
    """Returns the value whose one feature separates SOURCES of the examples best, by AUROC; the first of equals."""
    # A head that learns which way is adversarial makes as much of 0.1 as of 0.9; head "plain" does not. The trials are
    # made in their order, until most benign images reach the limit, which the feature cannot exceed.
    from sklearn.metrics import roc_auc_score

    few, aurocs = few_sources(data.examples, method.seed, SOURCES), {}
    for value, extractor in trials.items():
        table = feature_table(classifier, extractor, few, f"{label} {value:g}", data.show_progress, data.cache)
        auroc = float(roc_auc_score(table.adversarial, table.features[:, 0].numpy()))
        aurocs[value] = auroc if method.head_options.kind == "plain" else max(auroc, 1 - auroc)
        if float((table.benign >= limit * (1 - ROUNDING)).double().mean()) > 0.5:
            break
    return max(aurocs, key=lambda value: aurocs[value])
