"""LID: local intrinsic dimension of every layer among benign images (Ma 2018, arXiv:1801.02613).

LID_l(x) = −(1/k Σ_i ln(r_i / r_k))⁻¹: r_i the distance from layer l's activation of x to the i-th nearest activation
among a mini-batch of clean training images, the references.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from benfourier.data.images import LabelledImages
from benfourier.data.splits import stratified_order
from benfourier.detectors.extractor import Extractor, ObservingExtractor, same_source
from benfourier.detectors.feature_cache import feature_table
from benfourier.detectors.features import few_sources, held_out_auroc
from benfourier.detectors.method import FitData, Method, register_detector
from benfourier.detectors.state import ArrayRule
from benfourier.errors import InputError, OptionError, check_whole
from benfourier.models.classifier import Classifier
from benfourier.models.device import float64_device
from benfourier.models.forward import INPUT, batch_size, observe
from benfourier.models.layers import LayerList, select_layers
from benfourier.options import layer_names, switch, whole

KS = tuple(range(10, 100, 10))  # the authors' grid
LEAST = 1e-12  # distance below which points coincide
GREATEST = 1e6  # dimension beyond which float32 distances are equal but for rounding
NEAR = 0.01  # share of the squared lengths below which |a|² + |b|² − 2ab has lost digits
FULL = 2**30  # bytes of reference activations up to which they stay in float32
MOST = 2**32  # bytes of them in all; VGG-16 with 50 references takes 2.9 GB in bfloat16
LARGE = 4096  # entries from which on rounding to bfloat16 averages out
BLOCK = 2**22  # entries at once where rows are subtracted
PIECE = 2**13  # entries of a row at once where bfloat16 rows are widened
TIMES = 4  # as many images as a fit has references may be in a pool that fits share
WIDEST = 2**13  # distances per image that fits share


def matrix(activation: Tensor) -> Tensor:
    """Returns an activation as (images, entries), without a copy if the network works channels-last."""
    # Distances do not depend on the order of the entries, as long as it is always the same.
    rows = activation.permute(0, 2, 3, 1) if activation.ndim == 4 else activation
    return rows.reshape(len(rows), -1)


@dataclass(frozen=True, eq=False)
class ReferenceActivations:
    """Activations of one layer to the references."""

    rows: Tensor  # (references, entries), less their mean; bfloat16 where memory is short
    mean: Tensor  # (entries,); without it lengths would be much larger than distances

    @cached_property
    def _lengths(self) -> Tensor:
        return torch.stack([row.to(self.mean.dtype).square().sum() for row in self.rows])

    def squared_distances(self, queries: Tensor) -> Tensor:
        """Returns squared distances (queries, references), by subtraction where points are near each other."""
        queries = queries - self.mean
        lengths = queries.square().sum(1, keepdim=True) + self._lengths
        squared = lengths - 2 * self._products(queries)
        row, place = (squared < NEAR * lengths).nonzero(as_tuple=True)
        size = max(1, BLOCK // self.rows.shape[1])
        pairs = zip(torch.split(row, size), torch.split(place, size), strict=True)
        exact = [(queries[i] - self.rows[j].to(queries.dtype)).square().sum(1) for i, j in pairs]
        return squared.index_put((row, place), torch.cat(exact))

    def _products(self, queries: Tensor) -> Tensor:
        """Inner products (queries, references); bfloat16 rows are widened in pieces that stay in cache."""
        if self.rows.dtype == queries.dtype:
            return (self.rows @ queries.T).T
        products = queries.new_zeros(len(queries), len(self.rows))
        for start in range(0, self.rows.shape[1], PIECE):
            part = slice(start, start + PIECE)
            products = products + queries[:, part] @ self.rows[:, part].to(queries.dtype).T
        return products


@dataclass(frozen=True, eq=False)
class _Recorder:
    """Observer that copies whole activations, large layers in bfloat16 if memory is short."""

    layers: tuple[str, ...]
    short: bool

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        rows = matrix(activation)
        narrow = self.short and rows.shape[1] >= LARGE
        return rows.to(torch.bfloat16 if narrow else torch.promote_types(rows.dtype, torch.float32), copy=True)


@dataclass(frozen=True, eq=False)
class Distances(ObservingExtractor):
    """Squared distances of the layers' activations to those of references, layer by layer: pixels decide them."""

    layers: tuple[str, ...]  # names
    images: Annotated[Tensor, ArrayRule("R C H W", dtype=None)]  # references
    ids: tuple[str, ...]  # of the references
    classifier: Classifier  # the network

    pixels_only: ClassVar[bool] = True
    not_in_files: ClassVar[tuple[str, ...]] = ("classifier",)

    @cached_property
    def entries(self) -> tuple[int, ...]:
        """How many entries each layer's activation to one image has."""
        layers = self.classifier.layer_list(tuple(self.images.shape[1:]))
        entries = {layer.name: layer.entries for layer in layers.layers} | {INPUT: self.images[0].numel()}
        return tuple(entries[name] for name in self.layers)

    @property
    def size(self) -> int:
        """Bytes that the activations of the references take in float32."""
        return 4 * len(self.images) * sum(self.entries)

    @cached_property
    def references(self) -> dict[str, ReferenceActivations]:
        """Activations of the references by layer, computed when they are first needed."""
        if self.size > 2 * MOST:
            raise InputError(
                f"the activations of {len(self.layers)} layers to {len(self.images)} reference images take "
                f"{self.size / 2**31:.1f} GiB in half precision; at most {MOST / 2**30:g} GiB are stored: choose some "
                "layers, or a smaller mini-batch"
            )
        recorder = _Recorder(self.layers, short=self.size > FULL)
        images = torch.split(self.images, batch_size(self.classifier, tuple(self.images.shape[1:])))
        with torch.no_grad():
            parts = [dict(observe(self.classifier, part, [recorder]).values[0]) for part in images]
        references = {}
        for name in self.layers:
            rows = torch.cat([values.pop(name) for values in parts])
            mean = rows.mean(0, dtype=torch.promote_types(rows.dtype, torch.float32))
            for row in rows:  # in place, and one by one: the activations of all layers fill the memory
                row -= mean
            references[name] = ReferenceActivations(rows, mean)
        return references

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        """Returns squared distances, (images, references)."""
        return self.references[layer].squared_distances(matrix(activation))


@dataclass(frozen=True, eq=False)
class PoolDistances(Distances):
    """Distances to all images of a pool that many fits share, in float32."""

    def join(self, values: Mapping[str, Tensor], logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (images, layers · pool)."""
        return super().join({name: value.float() for name, value in values.items()}, logits, ids)


@dataclass(frozen=True, eq=False)
class Dimensions(Distances):
    """The local intrinsic dimension of every layer among the references, mini-batch after mini-batch."""

    batch: Annotated[int, check_whole]  # images in a mini-batch
    k: Annotated[int, check_whole]  # neighbours that count
    official: bool  # leave the nearest out, and set no limit, as the authors do
    pool: PoolDistances | None = None  # to the images that fits with one cache share; they hold the references

    not_in_files: ClassVar[tuple[str, ...]] = ("classifier", "pool")

    def join(self, values: Mapping[str, Tensor], logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the dimensions, (images, layers)."""
        squared = super().join(values, logits, ids)
        return self.dimensions(squared.to(float64_device(squared.device)), ids, (self.k,))[:, :, 0]

    def cacheable_parts(self) -> tuple[Extractor, ...]:
        """Returns the pool's distances; those to a fit's own references serve no other fit."""
        return () if self.pool is None else (self.pool,)

    def finish(self, features: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the dimensions (images, layers) from distances to the pool."""
        assert self.pool is not None
        places = {name: place for place, name in enumerate(self.pool.ids)}
        columns = [places[name] for name in self.ids]
        own = features.view(len(features), len(self.layers), -1)[:, :, columns]
        return self.dimensions(own.flatten(1), ids, (self.k,))[:, :, 0]

    def dimensions(self, squared: Tensor, ids: Sequence[str], ks: tuple[int, ...]) -> Tensor:
        """Returns the dimensions (images, layers, ks) from squared distances, the mean over mini-batches."""
        squared = squared.view(len(squared), len(self.layers), -1)
        if not self.official:  # an image's own source is no neighbour
            own = same_source(ids, self.ids).to(squared.device)
            squared = squared.masked_fill(own.unsqueeze(1), torch.inf)
        squared = squared.view(*squared.shape[:2], -1, self.batch)  # (images, layers, mini-batches, batch)
        entries = torch.tensor(self.entries, dtype=torch.float64, device=squared.device)
        limits = torch.full_like(entries, GREATEST) if self.official else entries
        return local_dimensions(squared, ks, limits.view(-1, 1), without_nearest=self.official).mean(2)


def local_dimensions(
    squared: Tensor, ks: tuple[int, ...], limits: Tensor | float, *, without_nearest: bool = False
) -> Tensor:
    """Returns −(1/k Σ_i ln(r_i / r_k))⁻¹ over the k nearest, for every k, (..., len(ks)), float64."""
    # Neighbours that all coincide with the query have dimension 0. Neighbours that are all equally far would have an
    # infinite one: no dimension exceeds its limit, the number of entries of the layer or GREATEST. Squared distances
    # (..., references) are infinite for references left out; at least max(ks) are finite.
    first = int(without_nearest)
    nearest = squared.topk(max(ks) + first, largest=False, sorted=True).values[..., first:]
    logs = nearest.double().clamp(min=LEAST**2).log() / 2
    greatest = torch.as_tensor(limits, dtype=torch.float64, device=logs.device)
    dimensions = []
    for k in ks:
        total = (logs[..., k - 1 : k] - logs[..., :k]).sum(-1)
        apart = nearest[..., k - 1] > LEAST**2
        dimensions.append(k / torch.maximum(total, k / greatest) * apart)
    return torch.stack(dimensions, -1)


@register_detector
@dataclass(frozen=True, kw_only=True)
class LID(Method):
    """One feature per layer."""

    k: int | str = whole(20, "cv", least=2)  # neighbours that count; "cv" chooses among 10, 20, ..., 90
    batch: int = whole(100, least=3)  # images in a mini-batch; fewer if there are fewer
    references: int = whole(1)  # mini-batches, over which the features are averaged
    layers: tuple[str, ...] | None = layer_names()  # "input-image" is the image itself; None for that and all layers
    pass_through: bool = switch(True)  # also layers that only pass numbers on in eval mode
    # As the authors' code: leave the nearest neighbour out, whichever it is, and set no limit to a dimension. Otherwise
    # the image's own source is left out, and no dimension exceeds the number of entries of its layer.
    official: bool = switch(False)

    id: ClassVar[str] = "lid"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (Dimensions,)
    authors_head: ClassVar[str] = "logistic"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {"rules": "authors", "scaling": "min-max", "official": True},
        "paper-imagenet": {"batch": 50, "k": 20},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k != "cv" and int(self.k) > self.batch - 1:
            raise OptionError(
                f"k is {self.k} and the mini-batch {self.batch}; without an image's own source {self.batch - 1} are "
                "left: ask for fewer neighbours or a larger mini-batch",
                "k",
            )

    def fit_extractor(self, classifier: Classifier, data: FitData) -> Dimensions:
        """Returns the reference images, and k as given or chosen."""
        examples = data.examples
        batch, k = min(self.batch, len(examples)), KS[0] if self.k == "cv" else int(self.k)
        if k > batch - 1:
            raise InputError(
                f"there are {len(examples)} clean images to take neighbours from; {k} neighbours need at least "
                f"{k + 1}: give more examples or a smaller k"
            )
        layers = self._layers(classifier.layer_list(tuple(examples.clean.shape[1:])))
        order = stratified_order(examples.ids, examples.labels.numpy(), seed=self.seed)
        rows = np.resize(order, self.references * batch)  # round and round, if there are too few for all batches
        images, ids = examples.clean[torch.from_numpy(rows)], tuple(examples.ids[row] for row in rows)
        dimensions = Dimensions(layers, images, ids, classifier, batch, k, self.official)
        pool = None if data.cache is None else _shared_pool(dimensions, data.cache.reference_pool)
        k = self._best_k(classifier, data, dimensions) if self.k == "cv" else k
        return replace(dimensions, k=k, pool=pool)

    def _layers(self, layers: LayerList) -> tuple[str, ...]:
        """Names of the chosen layers in firing order, the image itself first if it is among them."""
        first = (INPUT,) if self.layers is None or INPUT in self.layers else ()
        others = None if self.layers is None else [name for name in self.layers if name != INPUT]
        chosen = () if others == [] else select_layers(layers.layers, others, pass_through=self.pass_through)
        return first + tuple(layer.name for layer in chosen)

    def _best_k(self, classifier: Classifier, data: FitData, dimensions: Dimensions) -> int:
        """The k that separates held-out sources best."""
        ks = tuple(k for k in KS if k < dimensions.batch)
        few = few_sources(data.examples, self.seed)
        distances = Distances(dimensions.layers, dimensions.images, dimensions.ids, classifier)
        table = feature_table(classifier, distances, few, f"{self.name}: k", data.show_progress)
        features = dimensions.dimensions(table.features, table.sources, ks).numpy()
        aurocs = [held_out_auroc(features[:, :, place], table, self.seed) for place in range(len(ks))]
        return ks[int(np.argmax(aurocs))]


def _shared_pool(distances: Distances, pool: LabelledImages | None) -> PoolDistances | None:
    """Distances to all images of a pool, if it holds the references and is not much larger than they are."""
    if pool is None:
        return None
    shared = PoolDistances(distances.layers, pool.images, pool.ids, distances.classifier)
    places = {name: place for place, name in enumerate(pool.ids)}
    large = len(pool) > TIMES * len(distances.ids) or len(pool) * len(distances.layers) > WIDEST
    other_precision = (shared.size > FULL) != (distances.size > FULL)
    if large or shared.size > 2 * MOST or other_precision or not places.keys() >= set(distances.ids):
        return None
    same = torch.equal(pool.images[[places[name] for name in distances.ids]], distances.images)
    return shared if same else None
