"""What a method learned: an extractor, which turns images into features."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from benfourier.detectors.state import State, record_from_state, record_state
from benfourier.models.classifier import Classifier

EvidenceKind = Literal["spectrum", "margins", "numbers"]


class Extractor(ABC):  # noqa: B024  what is abstract stands in its two kinds
    """Turns images into features (images, D). Subclasses are frozen dataclasses; their fields are the state."""

    version: ClassVar[int] = 1  # part of every cache key; raise it when the features change
    pixels_only: ClassVar[bool] = False  # True if the features depend on pixels alone, never on ids
    not_in_files: ClassVar[tuple[str, ...]] = ()  # fields that no file holds: the classifier, what is supplied, others
    names: ClassVar[tuple[str, ...]] = ()  # of the features, if they are always the same
    evidence_kind: ClassVar[EvidenceKind] = "numbers"  # what the features are, for those who draw them

    def state(self) -> State:
        """Returns what a file holds: the fields, unless a subclass says otherwise."""
        return record_state(self)

    @classmethod
    def from_state(cls, classifier: Classifier, state: State, supplied: Mapping[str, Any]) -> Self:
        """Returns the extractor of a state; `supplied` holds what files cannot, by `Method.supplied_names`."""
        others = {"classifier": classifier, **supplied}
        return record_from_state(cls, state, **{name: others[name] for name in cls.not_in_files if name in others})

    def cacheable_parts(self) -> "tuple[Extractor, ...]":
        """Returns extractors whose features depend on pixels alone; a FeatureCache computes them once for all fits."""
        return (self,) if self.pixels_only else ()

    def finish(self, features: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the features (images, D), computed from those of the cacheable parts, which stand side by side."""
        return features

    def leaves(self) -> "tuple[Extractor, ...]":
        """Returns the extractors that it is put together from, or itself."""
        return (self,)

    def feature_names(self) -> tuple[str, ...]:
        """Returns the layer, view or criterion of each feature, for evidence; () if they have no names."""
        return self.names


class ObservingExtractor(Extractor):
    """Needs one forward pass, which it shares with every other observer. Gradients flow."""

    layers: tuple[str, ...]  # layers to observe, by name; logits come by themselves

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        """Returns what is needed of an activation, (images, ...), as a copy: later layers may write into it."""
        raise NotImplementedError

    def join(self, values: Mapping[str, Tensor], logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the features (images, D) after the pass; by default the reduced activations, layer by layer."""
        return torch.cat([values[layer].flatten(1).to(logits.device) for layer in self.layers], 1)

    def feature_names(self) -> tuple[str, ...]:
        """Returns the layers: one feature each is the usual case; with more they do not count."""
        return self.layers


class RunningExtractor(Extractor):
    """Runs the network by itself: it draws at random, takes gradients, or searches."""

    @abstractmethod
    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the features (images, D) of one batch of checked images; the network is left as it was."""
        # The logits (N, classes) are those of the shared forward pass; ids name the source image of each row.


@dataclass(frozen=True, eq=False)
class Concatenated(Extractor):
    """The features of several extractors side by side."""

    parts: tuple[Extractor, ...]

    def leaves(self) -> tuple[Extractor, ...]:
        """Returns those of all parts, so that all observers share one pass."""
        return tuple(leaf for part in self.parts for leaf in part.leaves())

    def feature_names(self) -> tuple[str, ...]:
        """Returns those of the parts; () unless every part has names."""
        names = [part.feature_names() for part in self.parts]
        return tuple(name for part in names for name in part) if all(names) else ()


def same_source(ids: Sequence[str], references: Sequence[str]) -> Tensor:
    """Returns bool (ids, references), true where a reference is an image's own source."""
    # An image is never compared with its own source: the distance would tell that it was fitted to, and nothing else.
    places = {name: place for place, name in enumerate(references)}
    sources = torch.tensor([places.get(name, -1) for name in ids])
    return sources.unsqueeze(1) == torch.tensor([places[name] for name in references])


def margins_of(logits: Tensor, labels: Tensor, top: int) -> Tensor:
    """Returns by how much the label's logit leads the highest others, (N, top)."""
    place = labels.unsqueeze(1)
    return logits.gather(1, place) - logits.scatter(1, place, -torch.inf).topk(top, dim=1).values
