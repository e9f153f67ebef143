"""Measures of the local intrinsic dimension of layers."""

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from benfourier.detectors.neighbours import Neighbours, local_dimensions, matrix
from benfourier.detectors.references import Register


@dataclass(frozen=True, eq=False)
class Dimensions:
    """Dimensions of the named layers, in firing order.

    Args:
        layers: names.
        images: references (mini-batches · batch, C, H, W).
        ids: of the references.
        batch: images in a mini-batch.
        k: neighbours that count.
        official: leave the nearest out.
        responses: the subject's to the references, layer by layer; files do not hold them.
    """

    layers: tuple[str, ...]
    images: Tensor
    ids: tuple[str, ...]
    batch: int
    k: int
    official: bool
    responses: InitVar[Mapping[str, Neighbours]]
    known: Mapping[str, Neighbours] = field(init=False, repr=False)

    def __post_init__(self, responses: Mapping[str, Neighbours]) -> None:
        object.__setattr__(self, "known", responses)

    @cached_property
    def register(self) -> Register:
        """Which references are an image's own."""
        return Register(self.ids)

    def ear(self, ids: Sequence[str]) -> "_Ear":
        """Returns an ear for one batch."""
        return _Ear(self, ids, (self.k,))

    def among(self, squared: Tensor, own: Tensor, ks: tuple[int, ...], entries: int) -> Tensor:
        """Returns the dimensions of a layer, (images, ks), the mean over mini-batches.

        Args:
            squared: distances to the references, (images, references).
            own: bool, references that are an image's own.
            ks: how many neighbours count.
            entries: of the layer.
        """
        if not self.official:
            squared = squared.masked_fill(own.to(squared.device), torch.inf)
        squared = squared.view(len(squared), -1, self.batch)
        return local_dimensions(squared, ks, entries, without_nearest=self.official).mean(1)


@dataclass(frozen=True, eq=False)
class Distances:
    """Squared distances of the named layers to all images of a pool.

    Args:
        layers: names.
        entries: of the layers.
        images: the pool's, (N, C, H, W).
        ids: of these.
        responses: the subject's to them, layer by layer.
    """

    layers: tuple[str, ...]
    entries: tuple[int, ...]
    images: Tensor
    ids: tuple[str, ...]
    responses: InitVar[Mapping[str, Neighbours]]
    known: Mapping[str, Neighbours] = field(init=False, repr=False)

    def __post_init__(self, responses: Mapping[str, Neighbours]) -> None:
        object.__setattr__(self, "known", responses)

    def ear(self, ids: Sequence[str]) -> "_Far":
        """Returns an ear for one batch."""
        return _Far(self)


@dataclass(frozen=True, eq=False)
class Shared(Dimensions):
    """The same, made of distances that many fits share: each looks at its own references among them.

    Args:
        distances: to a pool that holds the references; files do not hold them.
    """

    distances: InitVar[Distances]
    stage: Distances = field(init=False, repr=False)

    def __post_init__(self, responses: Mapping[str, Neighbours], distances: Distances) -> None:
        super().__post_init__(responses)
        object.__setattr__(self, "stage", distances)

    @cached_property
    def _places(self) -> list[int]:
        pool = {name: place for place, name in enumerate(self.stage.ids)}
        return [pool[name] for name in self.ids]

    def stages(self) -> tuple[Distances]:
        """Returns the distances."""
        return (self.stage,)

    def finished(self, found: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (images, layers)."""
        own = self.register.own(ids)
        parts = found.view(len(found), len(self.layers), -1)[:, :, self._places].unbind(1)
        heard = zip(parts, self.stage.entries, strict=True)
        return torch.cat([self.among(squared, own, (self.k,), entries) for squared, entries in heard], 1)


@dataclass(frozen=True, eq=False)
class Trial:
    """The same for several k at once."""

    measure: Dimensions
    ks: tuple[int, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """Those of the measure."""
        return self.measure.layers

    def ear(self, ids: Sequence[str]) -> "_Ear":
        """Returns an ear for one batch."""
        return _Ear(self.measure, ids, self.ks)


class _Ear:
    def __init__(self, measure: Dimensions, ids: Sequence[str], ks: tuple[int, ...]) -> None:
        self._measure, self._ks, self._own = measure, ks, measure.register.own(ids)
        self._heard: dict[str, Tensor] = {}

    def hear(self, name: str, response: Tensor) -> None:
        """Takes the dimensions (ks, images) at once, while the response is in cache."""
        rows = matrix(response)
        squared = self._measure.known[name].squared(rows)
        self._heard[name] = self._measure.among(squared, self._own, self._ks, rows.shape[1]).T

    def numbers(self, logits: Tensor) -> Tensor:
        """Returns (images, ks · layers)."""
        heard = [self._heard[name].to(logits.device) for name in self._measure.layers]
        return torch.stack(heard, 1).flatten(0, 1).T  # (ks, layers, images)


class _Far:
    def __init__(self, measure: Distances) -> None:
        self._measure = measure
        self._heard: dict[str, Tensor] = {}

    def hear(self, name: str, response: Tensor) -> None:
        """Takes the distances (images, pool)."""
        self._heard[name] = self._measure.known[name].squared(matrix(response)).float()

    def numbers(self, logits: Tensor) -> Tensor:
        """Returns (images, layers · pool)."""
        return torch.cat([self._heard[name].to(logits.device) for name in self._measure.layers], 1)
