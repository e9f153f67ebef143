"""KD+BU: density of the last hidden layer, and variance under dropout (Feinman 2017, arXiv:1703.00410).

KD(x) = −log p_ŷ(φ(x)): φ the last hidden layer, p_c a Gaussian kernel density over clean images whose true class is c,
ŷ the predicted class. BU(x) = mean over classes of Var_t[p_t(x)], t = 1..T, over passes with dropout on (Gal 2016,
arXiv:1506.02142).
"""

import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from benfourier.data.images import content_ids
from benfourier.data.seeds import image_seed
from benfourier.detectors.extractor import Concatenated, Extractor, ObservingExtractor, RunningExtractor, same_source
from benfourier.detectors.features import extract
from benfourier.detectors.method import CleanImages, FitData, Method, register_detector
from benfourier.detectors.state import ArrayRule
from benfourier.errors import ClassifierError, OptionError, check_number, check_whole
from benfourier.models.classifier import Classifier
from benfourier.models.device import float64_device
from benfourier.models.forward import INPUT
from benfourier.models.layers import Layer, LayerList, select_layers
from benfourier.models.module import eval_mode, leaf_modules, logits_of, softmax
from benfourier.options import number, whole

BLOCK = 2**22  # distances at once
QUERIES = 500  # points of a class that vote for a bandwidth, at most
FACTORS = np.logspace(-2, 1, 25)  # bandwidths to try, in units of the points' own spread
WHOLE_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
DROPOUTS = (nn.Dropout, *WHOLE_CHANNELS)
MEMORY = 256 * 2**20  # bytes that activations of one pass may take
CACHED = 2**25  # bytes of copies beyond which they would leave the processor's cache
LEVELS = 2**16  # a mask is drawn to this many levels of probability: four draws of one 64-bit number


@dataclass(frozen=True, eq=False)
class HiddenLayer(ObservingExtractor):
    """Activations of one layer, and the predicted class in the last column."""

    layers: tuple[str, ...]

    pixels_only: ClassVar[bool] = True

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        """Returns a copy (images, entries), float64."""
        return activation.flatten(1).to(float64_device(activation.device), torch.float64, copy=True)

    def join(self, values: Mapping[str, Tensor], logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (images, entries + 1)."""
        rows = values[self.layers[0]]
        return torch.cat([rows, logits.argmax(1, keepdim=True).to(rows)], 1)


@dataclass(frozen=True, eq=False)
class Density(HiddenLayer):
    """KD: −log of the density of the predicted class in one layer."""

    points: Annotated[Tensor, ArrayRule("n d", dtype=None)]  # class by class
    labels: Annotated[Tensor, ArrayRule("n", dtype=torch.int64)]
    ids: tuple[str, ...]  # source image of each point
    bandwidth: Annotated[float, partial(check_number, above=0)]  # of the kernel
    bu: str = ""  # why there is no second feature; empty if there is one

    def join(self, values: Mapping[str, Tensor], logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns −log p of the predicted class, (images, 1)."""
        return self.finish(super().join(values, logits, ids), ids)

    def cacheable_parts(self) -> tuple[Extractor, ...]:
        """Returns the layer's activations."""
        return (HiddenLayer(self.layers),)

    def finish(self, features: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns −log p of the predicted class, (images, 1); an image's own source does not count."""
        rows, classes, own = features[:, :-1], features[:, -1].long(), same_source(ids, self.ids).to(features.device)
        return -log_density(self.points, self.labels, self.bandwidth, rows, classes, own).unsqueeze(1)


def log_density(points: Tensor, labels: Tensor, bandwidth: float, rows: Tensor, classes: Tensor, own: Tensor) -> Tensor:
    """Returns the log of the kernel density of rows (N, d) under the class that each is given, float64 (N,)."""
    # log p_c(φ) = log Σ_i exp(−‖φ − φ_i‖² / 2h²) − log n_c − (d/2) log(2πh²), i over the n_c points of class c, but for
    # those in `own` (N, n), which do not count for a row. A class without points has the density of all points, less
    # the log of their number: what never occurred in n images has at most about one chance in n.
    mean = points.double().mean(0)
    rows, points = rows.double() - mean, points.double() - mean
    logs, every = rows.new_empty(len(rows)), torch.ones_like(labels, dtype=torch.bool)
    for label in sorted(set(classes.tolist())):
        here, members = classes == label, labels == label
        known = here & (~own[:, members]).any(1)
        for chosen, places, less in ((known, members, 0.0), (here & ~known, every, math.log(len(points)))):
            if not bool(chosen.any()):
                continue
            for part in chosen.nonzero().flatten().split(max(1, BLOCK // int(places.sum()))):
                left_out = own[part][:, places]
                squared = squared_distances(rows[part], points[places]).masked_fill(left_out, torch.inf)
                logs[part] = log_mean_kernel(squared, (~left_out).sum(1), bandwidth, rows.shape[1]) - less
    return logs


def squared_distances(rows: Tensor, points: Tensor) -> Tensor:
    """Returns ‖row − point‖² (rows, points); float64 loses about 1e-16 of the squared lengths."""
    lengths = rows.square().sum(1, keepdim=True) + points.square().sum(1)
    return (lengths - 2 * rows @ points.T).clamp(min=0)


def log_mean_kernel(squared: Tensor, counts: Tensor, bandwidth: float, dimension: int) -> Tensor:
    """Returns log of the mean normalised kernel over each row of squared distances, infinite ones left out."""
    constant = dimension / 2 * math.log(2 * math.pi * bandwidth**2)
    return torch.logsumexp(-squared / (2 * bandwidth**2), 1) - counts.log() - constant


def best_bandwidth(points: Tensor, labels: Tensor, seed: int) -> float:
    """Returns the bandwidth under which points are likeliest, each left out of its class's density in turn."""
    # Points that coincide with the one left out do not count: copies would ask for no width at all.
    data = points.double() - points.double().mean(0)
    spread = _spread(data, labels)
    if spread == 0:  # no two different points of one class
        labels = torch.zeros_like(labels)
        spread = _spread(data, labels) or 1.0
    widths = [float(spread * factor) for factor in FACTORS]
    total = torch.zeros(len(widths), dtype=torch.float64)
    draw = torch.Generator().manual_seed(seed)
    for label in sorted(set(labels.tolist())):
        members = data[labels == label]
        queries = members[torch.randperm(len(members), generator=draw)[:QUERIES]]
        squared = squared_distances(queries, members)
        lengths = queries.square().sum(1, keepdim=True) + members.square().sum(1)
        squared = squared.masked_fill(squared <= 1e-12 * lengths, torch.inf)
        counts = squared.isfinite().sum(1)
        squared, counts = squared[counts > 0], counts[counts > 0]
        total += torch.stack([log_mean_kernel(squared, counts, width, data.shape[1]).sum() for width in widths])
    return widths[int(total.argmax())] if bool(total.any()) else spread


def _spread(data: Tensor, labels: Tensor) -> float:
    """Root of the mean variance within classes; 0 if no class has two different points."""
    parts = [data[labels == label] for label in sorted(set(labels.tolist()))]
    scatter = sum(float((part - part.mean(0)).square().sum()) for part in parts)
    return math.sqrt(scatter / data.numel()) if scatter > 1e-12 * float(data.square().sum()) else 0.0


@dataclass(frozen=True, eq=False)
class DropoutVariance(RunningExtractor):
    """BU: variance of the posteriors over T passes that differ only in what Dropout modules drop (Gal 2016)."""

    # Hooks drop, so every module stays in eval mode, BatchNorm among them. Masks belong to an image's pixels, not to
    # its place in a batch.

    passes: Annotated[int, partial(check_whole, most=1_000_000)]  # T
    seed: int  # of all masks
    late: bool  # passes split at the first dropout, so that what comes before it is computed once

    pixels_only: ClassVar[bool] = True
    names: ClassVar[tuple[str, ...]] = ("dropout",)

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the mean variance of each image, (N, 1), float64."""
        return torch.cat([p.var(1, correction=0).mean(1) for p in self.posteriors(classifier, images)]).unsqueeze(1)

    def posteriors(self, classifier: Classifier, images: Tensor) -> Iterator[Tensor]:
        """Yields the posteriors (images, passes, classes) of a few images at a time, as memory allows."""
        layers = classifier.layer_list(tuple(images.shape[1:]))
        modules = dropout_modules(classifier.module, layers)
        # So many rows go through the dropped part at once, three of its largest activations in memory. Copies that go
        # on alone are quickest while they stay in cache; but the passes of one image go together.
        place = [layer.name for layer in layers.layers].index(next(iter(modules))) if self.late else 0
        row = 3 * max(layer.entries for layer in layers.layers[place:]) * classifier.dtype.itemsize
        rows = max(1, CACHED // row, min(self.passes, MEMORY // row)) if self.late else max(1, MEMORY // row)
        together, at_once = max(1, rows // self.passes), min(self.passes, rows)
        for start in range(0, len(images), together):
            part = images[start : start + together]
            prepared, masks = classifier.prepare(part), _Masks(content_ids(part), self.seed)
            posteriors = []
            for first in range(0, self.passes, at_once):
                masks.passes = min(at_once, self.passes - first)
                copies = prepared.clone() if self.late else prepared.repeat_interleave(masks.passes, 0)
                copies = copies.contiguous(memory_format=layers.memory_format)
                with eval_mode(classifier.module), masks.on(modules), torch.no_grad():
                    logits = logits_of(classifier.module(copies), len(part) * masks.passes)
                posteriors.append(softmax(logits).view(len(part), masks.passes, -1))
            yield torch.cat(posteriors, dim=1)


class _Masks:
    """Drops entries of a few images, each by draws of its own, separate for every firing of a module."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self.passes = 1
        self._names, self._seed = names, seed
        self._draws: dict[str, list[np.random.SFC64]] = {}
        self._thread = threading.get_ident()

    @contextmanager
    def on(self, modules: dict[str, nn.Module]) -> Iterator[None]:
        """Hooks the modules while the block runs."""
        firings: Counter[str] = Counter()

        def hook(name: str, module: nn.Module, inputs: object, activation: Tensor) -> Tensor | None:
            if threading.get_ident() != self._thread:  # another thread uses the module
                return None
            firings[name] += 1
            return self._drop(f"{name}#{firings[name]}", module, activation)

        with ExitStack() as stack:
            for name, module in modules.items():
                stack.callback(module.register_forward_hook(partial(hook, name)).remove)
            yield

    def _drop(self, firing: str, module: Any, activation: Tensor) -> Tensor:
        """The activation of all copies (images · passes, ...), even if it came for the images alone."""
        images, shape = len(self._names), activation.shape[1:]
        drawn = (shape[0], *[1] * (len(shape) - 1)) if isinstance(module, WHOLE_CHANNELS) else shape
        if firing not in self._draws:
            self._draws[firing] = [np.random.SFC64(image_seed(self._seed, f"{name}/{firing}")) for name in self._names]
        limit, entries = round(LEVELS * module.p), math.prod(drawn)
        words = -(-entries // 4)  # 64-bit numbers, of which four levels are read each; the next passes go on from there
        raw = np.stack([draw.random_raw(self.passes * words) for draw in self._draws[firing]]).view(np.uint16)
        stay = raw.reshape(images, self.passes, 4 * words)[:, :, :entries] >= limit
        masks = torch.from_numpy(stay).to(activation.device).view(images, self.passes, *drawn)
        each = 1 if len(activation) == images else self.passes
        raised = activation.contiguous().view(images, each, *shape) * (LEVELS / max(1, LEVELS - limit))
        copies: Tensor = masks.to(activation.dtype) * raised
        return copies.flatten(0, 1)


def dropout_modules(module: nn.Module, layers: LayerList) -> dict[str, nn.Module]:
    """Returns the Dropout modules that fire and have something to drop, by name, in firing order."""
    names = [layer.name.split("#")[0] for layer in layers.layers]
    known = {name: leaf for name, leaf in leaf_modules(module) if isinstance(leaf, DROPOUTS) and leaf.p > 0}
    return {name: known[name] for name in names if name in known}


def splits_at_first_dropout(classifier: Classifier, images: Tensor, seed: int) -> bool:
    """Returns whether passes may split at the first dropout: tried, and compared with whole passes."""
    whole_passes = torch.cat(list(DropoutVariance(2, seed, late=False).posteriors(classifier, images)))
    try:
        late_passes = torch.cat(list(DropoutVariance(2, seed, late=True).posteriors(classifier, images)))
    except (RuntimeError, ValueError, TypeError, IndexError, ClassifierError):  # images and copies met in one operation
        return False
    return torch.allclose(late_passes, whole_passes, rtol=1e-3, atol=1e-6)


@register_detector
@dataclass(frozen=True, kw_only=True)
class KDBU(Method):
    """Two features per image, or one for networks without dropout."""

    layer: str | None = None  # name of the layer whose density is taken; None for the last hidden one
    bandwidth: float | str = number("cv", "cv", above=0)  # "cv": the likeliest for images that are left out in turn
    bu: bool | None = None  # passes under dropout; None makes them if the classifier has Dropout modules
    passes: int = whole(50, least=2)  # T

    id: ClassVar[str] = "kd-bu"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (Density, DropoutVariance)
    authors_head: ClassVar[str] = "logistic"
    clean_images: ClassVar[CleanImages] = "optional"  # the authors' points are training images

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bu not in (None, True, False):
            raise OptionError(f"bu is {self.bu!r}; it must be True, False, or None to let the classifier decide", "bu")

    @property
    def needs(self) -> frozenset[str]:
        """Passes under dropout draw at random."""
        return frozenset({"forward"} if self.bu is False else {"forward", "random"})

    def fit_extractor(self, classifier: Classifier, data: FitData) -> Density | Concatenated:
        """Returns the points of the densities with their bandwidth, and passes under dropout if there is any."""
        clean = data.labelled
        layers = classifier.layer_list(tuple(clean.images.shape[1:]))
        drops = bool(dropout_modules(classifier.module, layers))
        if self.bu and not drops:
            raise ClassifierError(
                "the module has no Dropout that fires and drops, so passes under dropout would all be the same; "
                "leave bu out, or give a network with nn.Dropout modules (functional dropout is not seen)"
            )
        layer = self._layer(layers.layers)
        title, show = f"{self.name}: {layer}", data.show_progress
        hidden = HiddenLayer((layer,))
        (rows,) = extract(classifier, [hidden], clean.images, clean.ids, label=title, show_progress=show)
        order = clean.labels.argsort(stable=True)
        points, labels = rows.cpu()[order, :-1], clean.labels[order]
        width = best_bandwidth(points, labels, self.seed) if self.bandwidth == "cv" else float(self.bandwidth)
        ids = tuple(clean.ids[place] for place in order.tolist())
        points = points.to(torch.promote_types(classifier.dtype, torch.float32))
        if self.bu is False or not drops:
            why = "off, as asked" if self.bu is False else "off: the network has no Dropout module to drop with"
            return Density((layer,), points, labels, ids, width, why)
        late = splits_at_first_dropout(classifier, clean.images[:3], self.seed)
        density = Density((layer,), points, labels, ids, width)
        return Concatenated((density, DropoutVariance(self.passes, self.seed, late)))

    def _layer(self, layers: Sequence[Layer]) -> str:
        if self.layer is None:
            return last_hidden_layer(layers)
        chosen = () if self.layer == INPUT else select_layers(layers, self.layer, pass_through=True)
        if len(chosen) > 1:
            raise OptionError(f"layer is {self.layer!r}, which {len(chosen)} layers match; it must name one")
        return chosen[0].name if chosen else INPUT


def last_hidden_layer(layers: Sequence[Layer]) -> str:
    """Returns the last layer that computes something before the one that gives the logits."""
    classes = layers[-1].entries
    solid = [layer for layer in layers[:-1] if not layer.pass_through]
    linear = [place for place, layer in enumerate(solid) if layer.kind.lower() == "linear" and layer.entries == classes]
    place = linear[-1] if linear else len(solid) - 1
    return solid[place - 1].name if place > 0 else INPUT
