"""Second opinion: what another network says of the label (Prediction Inconsistency Detection, arXiv:2506.03765).

score(x) = −log p'_ŷ(x): ŷ = argmax Z(x) of the guarded network, p' the posteriors of a second one. Or, for a head, the
second network's margin of ŷ beside the guarded network's own.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benfourier.detectors.extractor import Extractor, RunningExtractor, margins_of
from benfourier.detectors.heads import HeadOptions
from benfourier.detectors.method import FitData, Method, register_detector
from benfourier.detectors.state import State, record_from_state
from benfourier.errors import ClassifierError, ImageError, InputError
from benfourier.models.classifier import Classifier
from benfourier.models.forward import observe
from benfourier.models.image_formats import IMAGE_OPTIONS
from benfourier.models.weights import fill_weights, state_tensors, weights_digest
from benfourier.options import word
from benfourier.store.vocabulary import SECOND

FEATURES = ("posterior", "margins")


@dataclass(frozen=True, eq=False)
class OtherNetwork(RunningExtractor):
    """What a second network says of the label that the guarded network gives."""

    weights: Mapping[str, Tensor]  # of the second network, by name
    digest: str  # of these weights
    images: Mapping[str, Any]  # how images enter the second network: options of Classifier
    features: str  # one of FEATURES
    second: Classifier  # the network, filled with the weights

    pixels_only: ClassVar[bool] = True
    not_in_files: ClassVar[tuple[str, ...]] = ("second",)

    @classmethod
    def from_state(cls, classifier: Classifier, state: State, supplied: Mapping[str, Any]) -> Self:
        """Returns the extractor; what is supplied gives the network's architecture, the file its weights."""
        module = copy.deepcopy(_module_of(supplied[SECOND]))  # the caller's own stays as it is
        fill_weights(module, state["weights"], "the second network's weights")
        if weights_digest(module) != state["digest"]:
            raise ValueError(f"the second network is not in the dtype of its weights, {state['digest'][:12]}…")
        second = Classifier(module.eval().requires_grad_(False).to(classifier.device), **state["images"])
        return record_from_state(cls, state, second=second)

    def feature_names(self) -> tuple[str, ...]:
        """Returns "second network", with margins beside "image"."""
        return ("second network",) if self.features == "posterior" else ("image", "second network")

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns −log of the label's posterior, (N, 1), or the margins of both networks, (N, 2)."""
        labels = logits.argmax(1)
        others = observe(self.second, to_bounds(images, classifier, self.second), []).logits.to(logits)
        if self.features == "posterior":
            return F.cross_entropy(others, labels, reduction="none").unsqueeze(1)
        return torch.cat([margins_of(each, labels, 1) for each in (logits, others)], 1)


def to_bounds(images: Tensor, classifier: Classifier, second: Classifier) -> Tensor:
    """Returns images of one classifier as the second one takes them."""
    (low, high), (least, greatest) = classifier.bounds, second.bounds
    if (low, high) == (least, greatest):
        return images
    return ((images - low) / (high - low) * (greatest - least) + least).clamp(least, greatest)


@register_detector
@dataclass(frozen=True, kw_only=True)
class SecondOpinion(Method):
    """The label of the guarded network under another network, which is passed as `supplied={"second": ...}`.

    Args:
        features: "posterior", the method as published, needs no fit and no attacks; "margins" is for a head.

    The second network takes images of the same size, and has the same classes in the same order.
    """

    features: str = word(*FEATURES)

    id: ClassVar[str] = "second-opinion"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (OtherNetwork,)
    supplied_names: ClassVar[tuple[str, ...]] = (SECOND,)
    needs: ClassVar[frozenset[str]] = frozenset({"passes"})
    paper_head: ClassVar[str] = "logistic"
    authors_head: ClassVar[str] = "logistic"

    @property
    def head_options(self) -> HeadOptions:
        """The posterior is the score; margins have a logistic regression."""
        options = super().head_options
        return replace(options, kind="plain") if self.features == "posterior" and self.head is None else options

    def fit_extractor(self, classifier: Classifier, data: FitData) -> OtherNetwork:
        """Returns the second network, once it proves to fit the first."""
        second = data.supplied[SECOND]
        if not isinstance(second, Classifier):
            raise InputError(f"second is a {type(second).__name__}; it must be a Classifier: Classifier(module)")
        if _module_of(second) is classifier.module:
            raise InputError("second is the guarded network itself, which always agrees; give another one")
        _check_fits(classifier, second, data.examples.clean[:1])
        weights = {name: tensor.cpu().clone() for name, tensor in state_tensors(second.module).items()}
        images = {name: getattr(second, name) for name in IMAGE_OPTIONS}
        return OtherNetwork(weights, weights_digest(second.module), images, self.features, second)


def _module_of(second: Any) -> nn.Module:
    module = second.module if isinstance(second, Classifier) else second
    if not isinstance(module, nn.Module):
        raise InputError(f"second is a {type(second).__name__}; it must be a torch.nn.Module or a Classifier")
    return module


def _check_fits(classifier: Classifier, second: Classifier, image: Tensor) -> None:
    """Raises InputError unless the second network takes the images of the first and has as many classes."""
    with torch.no_grad():
        count = classifier.logits(image).shape[1]
        try:
            other = second.logits(to_bounds(image, classifier, second)).shape[1]
        except (ClassifierError, ImageError, RuntimeError) as error:
            raise InputError(
                f"second does not take images of shape {tuple(image.shape[1:])} ({error}); give a network for images "
                "of the same size and channels, or wrap it in a module that resizes them"
            ) from error
    if other != count:
        raise InputError(
            f"second has {other} classes and the guarded network {count}; both must have the same classes, in the "
            "same order"
        )
