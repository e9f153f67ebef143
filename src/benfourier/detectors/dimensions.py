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
        self._measure, self._ks = measure, ks
        self._own = None if measure.official else measure.register.own(ids)
        self._heard: dict[str, Tensor] = {}

    def hear(self, name: str, response: Tensor) -> None:
        """Takes the dimensions (ks, images) at once, while the response is in cache."""
        rows = matrix(response)
        squared = self._measure.known[name].squared(rows)
        if self._own is not None:
            squared = squared.masked_fill(self._own.to(squared.device), torch.inf)
        squared = squared.view(len(rows), -1, self._measure.batch)
        found = local_dimensions(squared, self._ks, rows.shape[1], without_nearest=self._measure.official)
        self._heard[name] = found.mean(1).T

    def numbers(self, logits: Tensor) -> Tensor:
        """Returns (images, ks · layers)."""
        heard = [self._heard[name].to(logits.device) for name in self._measure.layers]
        return torch.stack(heard, 1).flatten(0, 1).T  # (ks, layers, images)
