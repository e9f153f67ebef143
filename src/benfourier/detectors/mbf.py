"""MBF: magnitudes of Benford-Fourier coefficients of every layer (Ma 2020, arXiv:2005.05552).

|â_n| = |(1/M) Σ_m exp(−j2πn log10|r_m|)|, r the activations of one layer to one image less their mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier import kernels
from benfourier.detectors.extractor import EvidenceKind, Extractor, ObservingExtractor
from benfourier.detectors.features import extract
from benfourier.detectors.method import FitData, Method, register_detector
from benfourier.errors import check_choice, check_whole
from benfourier.kernels.sample import sample_rows
from benfourier.models.classifier import Classifier, check_classifier
from benfourier.models.forward import MEMORY, batch_size
from benfourier.models.layers import LayerSelection, select_layers
from benfourier.options import layer_names, switch, whole, word
from benfourier.theory.coefficients import Zeros

ENTRIES = 4096  # of a layer that are read by default: what fewer lose, and how this was chosen, is in docs/features.md
MAX_ORDERS = 4096  # far beyond any use; it bounds the memory that a file can ask for
JOINED = 1 << 16  # entries of one layer, over a batch, up to which layers of one width are computed in one call


@dataclass(frozen=True, eq=False)
class Magnitudes(ObservingExtractor):
    """|â_n| of the named layers, layer by layer in firing order."""

    layers: tuple[str, ...]  # names
    orders: Annotated[int, partial(check_whole, most=MAX_ORDERS)] = 16  # |â_n| is taken for n = 1..orders
    centre: bool = True  # subtract the mean of each image's activations first
    zeros: Zeros = "drop"  # what becomes of exact zeros after centring
    entries: int | None = None  # of a layer that are read; None for all
    backend: kernels.Backend = "auto"  # of the kernel

    pixels_only: ClassVar[bool] = True
    not_in_files: ClassVar[tuple[str, ...]] = ("backend",)
    evidence_kind: ClassVar[EvidenceKind] = "spectrum"

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        """Returns |â_n| of one layer, (images, orders); in a small batch the entries that are read, (images, M)."""
        if not self._joins_layers(len(activation)):
            return self._magnitudes(activation)
        with torch._C.DisableTorchFunction():  # without a detour through the recorder of layers
            if prod(activation.shape[1:]) > self.entries:  # type: ignore[operator]
                return sample_rows(activation, self.entries)
            return activation.clone(memory_format=torch.contiguous_format).reshape(len(activation), -1)

    def join(self, values: Mapping[str, Tensor], logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns |â_n| of all layers, (images, layers · orders)."""
        if not self._joins_layers(len(logits)):
            return super().join(values, logits, ids)
        groups: dict[object, list[str]] = {}
        for layer in self.layers:
            groups.setdefault((values[layer].shape[1], values[layer].dtype, values[layer].device), []).append(layer)
        result: dict[str, Tensor] = {}
        for layers in groups.values():
            rows = self._magnitudes(torch.cat([values[layer] for layer in layers]))
            result |= zip(layers, rows.chunk(len(layers)), strict=True)
        return super().join(result, logits, ids)

    def _joins_layers(self, images: int) -> bool:
        """True if so few entries are read that layers of one width share a call: by itself it would take longer."""
        return self.entries is not None and images * self.entries <= JOINED

    def _magnitudes(self, activations: Tensor) -> Tensor:
        options: Any = {name: getattr(self, name) for name in ("centre", "zeros", "entries", "backend")}
        return kernels.magnitudes(activations, self.orders, **options)

    def feature_names(self) -> tuple[str, ...]:
        """Returns each layer, as often as there are orders."""
        return tuple(layer for layer in self.layers for _ in range(self.orders))


@register_detector
@dataclass(frozen=True, kw_only=True)
class MBF(Method):
    """The method of the paper.

    Args:
        orders: |â_n| is taken for n = 1..orders.
        layers: names, globs or "type:Conv2d"; None for all.
        pass_through: also layers that only pass numbers on in eval mode.
        centre: subtract the mean of each image's activations first.
        zeros: what becomes of exact zeros after centring: "drop", "count" or "one".
        entries: of each layer that are read, spread over the layer; None or "all" for all.

    Scaling, C and γ are those that did best in cross-validation: docs/detectors.md has the table.
    """

    scaling: str = "none"
    C: float | str = 10.0
    gamma: float | str = 1.0
    orders: int = whole(16, most=MAX_ORDERS)
    layers: tuple[str, ...] | None = layer_names()
    pass_through: bool = switch(False)
    centre: bool = switch(True)
    zeros: Zeros = word("drop", "count", "one")  # noqa: RUF009
    entries: int | str | None = whole(ENTRIES, None, "all")

    id: ClassVar[str] = "mbf"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (Magnitudes,)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"orders": 16, "pass_through": True, "entries": None}
        | {"scaling": "none", "C": 1.0, "gamma": 1.0, "head": "svm"}
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.entries == "all":  # how files and tables write it; None in code
            object.__setattr__(self, "entries", None)

    def as_dict(self) -> dict[str, Any]:
        """Returns every option; all entries are written as "all"."""
        return {**super().as_dict(), "entries": self.entries or "all"}

    def fit_extractor(self, classifier: Classifier, data: FitData) -> Magnitudes:
        """Returns the layers to observe: nothing else is learned."""
        return self._magnitudes(classifier, data.examples.clean, self.layers)

    def _magnitudes(
        self, classifier: Classifier, images: Tensor, layers: LayerSelection, backend: kernels.Backend = "auto"
    ) -> Magnitudes:
        every = classifier.layer_list(tuple(images.shape[1:])).layers
        names = tuple(layer.name for layer in select_layers(every, layers, pass_through=self.pass_through))
        count = None if self.entries is None else int(self.entries)
        return Magnitudes(names, self.orders, self.centre, self.zeros, count, backend)


def features(
    classifier: Classifier,
    images: Tensor,
    orders: int = 16,
    *,
    layers: LayerSelection = None,
    pass_through: bool = False,
    centre: bool = True,
    zeros: Zeros = "drop",
    entries: int | None = ENTRIES,
    backend: kernels.Backend = "auto",
    dtype: Literal["float32", "float64"] = "float32",
    batch: int | None = None,
    memory: int = MEMORY,
    show_progress: bool | None = None,
) -> NDArray[np.floating]:
    """Returns the MBF features (images, layers · orders), layer by layer in firing order.

    Args:
        classifier: the network to observe.
        images: floating tensor (N, C, H, W) within the classifier's bounds.
        orders: |â_n| is taken for n = 1..orders.
        layers: names, globs or types; None for all.
        pass_through: also layers that only pass numbers on in eval mode.
        centre: subtract the mean of each image's activations first.
        zeros: what becomes of exact zeros after centring: "drop", "count" or "one".
        entries: of each layer that are read; None for all.
        backend: of the kernel: "auto", "reference", "numba" or "torch".
        dtype: of the result; the kernels' own precision is not changed by it.
        batch: images per forward pass; by default as many as fit the memory, 256 at most.
        memory: bytes that the activations of a batch may take.
        show_progress: True or False to force the bar; by default it is drawn on a terminal.
    """
    options = MBF(orders=orders, pass_through=pass_through, centre=centre, zeros=zeros, entries=entries)
    check_choice("dtype", dtype, ("float32", "float64"))
    check_choice("backend", backend, get_args(kernels.Backend))
    check_whole("memory", memory)
    check_classifier(classifier)
    classifier.check_images(images)
    extractor = options._magnitudes(classifier, images, layers, backend)
    ids = [str(place) for place in range(len(images))]
    size = batch_size(classifier, images.shape[1:], memory=memory) if batch is None else batch
    (rows,) = extract(classifier, [extractor], images, ids, batch=size, label="features", show_progress=show_progress)
    return rows.cpu().numpy().astype(dtype)
