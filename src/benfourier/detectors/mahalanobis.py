"""Mahalanobis distance of every layer to the nearest class (Lee 2018, arXiv:1807.03888).

M_l(x) = min_c ½ (φ − μ_c)ᵀ Σ⁻¹ (φ − μ_c): φ the averages of layer l over all positions, μ_c the mean of clean images
whose true class is c, Σ their common covariance. With a magnitude m the image is first moved towards its nearest
class, x − m · sign(∂M_l/∂x), by a gradient of its own for each layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from benfourier.detectors.extractor import Extractor, ObservingExtractor, RunningExtractor, same_source
from benfourier.detectors.feature_cache import feature_table
from benfourier.detectors.features import extract, few_sources, held_out_auroc
from benfourier.detectors.method import CleanImages, FitData, Method, register_detector
from benfourier.detectors.state import ArrayRule
from benfourier.models.classifier import Classifier
from benfourier.models.device import float64_device
from benfourier.models.forward import SOFTMAX, batch_size, observe
from benfourier.models.layers import select_layers
from benfourier.models.module import frozen
from benfourier.options import layer_names, number

MAGNITUDES = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.005, 0.01)  # the authors' grid, as shares of the range of pixels
NOISE = 1e-6  # share of its size by which a channel, rounded to float32, may spread without reason
SINGULAR = 1e-6  # share of an image's direction that other images must have too


@dataclass(frozen=True, eq=False)
class ChannelAverages(ObservingExtractor):
    """The channel averages of several layers, in firing order, side by side."""

    layers: tuple[str, ...]

    pixels_only: ClassVar[bool] = True

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        """Returns the averages of one layer, (images, channels), float64."""
        # channels are the second dimension of maps (N, C, H, W) and the last one of rows of tokens (N, T, D)
        if activation.ndim > 2:
            positions = (1,) if activation.ndim == 3 else tuple(range(2, activation.ndim))
            activation = activation.mean(positions)
        # one number per image, (N,), is a channel too
        rows = activation.reshape(len(activation), -1)
        return rows.to(float64_device(activation.device), torch.float64, copy=True)


@dataclass(frozen=True, eq=False)
class LayerGaussians:
    """K means and one covariance of the C channels of a layer; squared Mahalanobis distances in float64."""

    # Unless δ = 0, channels are first divided by their spread within classes. Then Σ = (1 − δ) S + δ I, S the
    # covariance of residuals, images less their class mean. Its inverse is held as ‖x‖² / δ − ‖x F‖² where S has not
    # full rank, and as ‖x F‖² where it has; δ = 0 gives the pseudo-inverse of S.

    centre: Annotated[Tensor, ArrayRule("C")]  # subtracted from the channels
    unit: Annotated[Tensor, ArrayRule("C")]  # multiplies them then; 0 for channels that do not count
    frame: Annotated[Tensor, ArrayRule("C rank")]  # F
    floor: float  # 1/δ where S has not full rank, or 0
    means: Annotated[Tensor, ArrayRule("K C")]  # of the classes, scaled
    counts: Annotated[Tensor, ArrayRule("K", dtype=torch.int64, above=-1)]  # images of each class
    shrinkage: float  # δ
    residuals: Annotated[Tensor, ArrayRule("n C", dtype=None)]  # of images that may be asked about again, scaled

    def scaled(self, rows: Tensor) -> Tensor:
        """Returns rows (N, C) in the units of the Gaussians."""
        return (rows - self.centre) * self.unit

    def distances(self, rows: Tensor) -> Tensor:
        """Returns the squared distance of each row to each mean, (N, K), never below 0."""
        rows = self.scaled(rows)
        framed = _squared(rows @ self.frame, self.means @ self.frame)
        return (self.floor * _squared(rows, self.means) - framed if self.floor else framed).clamp(min=0)

    def distances_leaving_out(self, rows: Tensor, residuals: Tensor, classes: Tensor) -> Tensor:
        """Returns the same as if one image, another for each row, had not been among those the Gaussians came from."""
        # Its class mean moves, and S loses its share (S is still divided by all images, and δ stays). With d the
        # image's residual, n of the N images in its class, and h = (1 − δ) n / (n − 1) / N: (Σ − h d dᵀ)⁻¹ = Σ⁻¹ + h
        # Σ⁻¹ d dᵀ Σ⁻¹ / (1 − h dᵀ Σ⁻¹ d). A class of that image alone is gone. Where δ = 0 and the image alone spread
        # along a direction, 1 − h dᵀ Σ⁺ d = 0; with k = Σ⁺ d the pseudo-inverse is then (Meyer 1973) Σ⁺ − (k kᵀ Σ⁺ + Σ⁺
        # k kᵀ) / ‖k‖² + (kᵀ Σ⁺ k) k kᵀ / ‖k‖⁴. Residuals (N, C) are scaled; classes (N,) are places among the means.
        squared, rows, place = self.distances(rows), self.scaled(rows), classes.unsqueeze(1)
        inverse = self._solve(residuals)  # Σ⁻¹ d
        cross = self._cross(rows, inverse)
        own_size = (residuals * inverse).sum(1, keepdim=True)
        others = (self.counts[place] - 1).clamp(min=1)
        own = torch.zeros_like(squared).scatter(1, place, 1.0) / others
        squared = squared + 2 * own * cross + own.square() * own_size
        cross = cross + own * own_size
        share = (1 - self.shrinkage) * self.counts[place] / others / self.counts.sum()
        rest = 1 - share * own_size
        result = squared + share / rest.clamp(min=1e-12) * cross.square()
        if self.shrinkage == 0:
            size = inverse.square().sum(1, keepdim=True).clamp(min=1e-300)
            again = self._solve(inverse)
            twice = self._cross(rows, again) + own * size
            shape = (inverse * again).sum(1, keepdim=True) / size
            less = squared - (2 * cross * twice - shape * cross.square()) / size
            result = torch.where(rest > SINGULAR, result, less)
        alone = (self.counts[place] == 1) & (own > 0)
        return result.clamp(min=0).masked_fill(alone, torch.inf)

    def _solve(self, rows: Tensor) -> Tensor:
        """Σ⁻¹ of each row, (N, C)."""
        framed = rows @ self.frame @ self.frame.T
        return self.floor * rows - framed if self.floor else framed

    def _cross(self, rows: Tensor, others: Tensor) -> Tensor:
        """The products of another row with each row less each mean, (N, K)."""
        return (rows * others).sum(1, keepdim=True) - others @ self.means.T


def _squared(rows: Tensor, points: Tensor) -> Tensor:
    return rows.square().sum(1, keepdim=True) + points.square().sum(1) - 2 * rows @ points.T


def fit_gaussians(rows: Tensor, classes: Tensor, shrinkage: float | None) -> LayerGaussians:
    """Returns the Gaussians of float64 rows (n, C), with the residuals of all of them."""
    # Classes (n,) are 0..K−1, none of them empty. δ is the shrinkage, or that of Ledoit and Wolf (2004) for these rows.
    counts = torch.bincount(classes)
    centre = rows.mean(0)
    means = torch.zeros(len(counts), rows.shape[1], dtype=torch.float64).index_add(0, classes, rows - centre)
    means = means / counts.unsqueeze(1)
    residuals = rows - centre - means[classes]
    spread = residuals.square().mean(0).sqrt()
    noise = NOISE * rows.square().mean(0).sqrt()
    alive = spread > noise
    # The authors' pseudo-inverse is that of unscaled channels; a true inverse does not depend on the scale.
    scale = torch.ones_like(spread) if shrinkage == 0 else 1 / spread.clamp(min=1e-300)
    unit = torch.where(alive, scale, torch.zeros_like(spread))
    residuals = residuals * unit
    variances, axes = _axes(residuals, float((noise * unit).square().sum()))
    delta = _ledoit_wolf(residuals, variances, int(alive.sum())) if shrinkage is None else shrinkage
    weights = 1 / ((1 - delta) * variances + delta)
    floor = 1 / delta if delta > 0 and len(variances) < int(alive.sum()) else 0.0
    frame = axes * (floor - weights if floor else weights).clamp(min=0).sqrt()
    return LayerGaussians(centre, unit, frame, floor, means * unit, counts, delta, residuals)


def _axes(residuals: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Variances above that of rounding, and their axes (C, rank)."""
    count, channels = residuals.shape
    if count < channels:
        _, lengths, axes = torch.linalg.svd(residuals, full_matrices=False)
        variances, axes = lengths.square() / count, axes.T
    else:
        variances, axes = torch.linalg.eigh(residuals.T @ residuals / count)
    real = variances > noise + channels * torch.finfo(torch.float64).eps * variances.max()
    return variances[real], axes[:, real]


def _ledoit_wolf(residuals: Tensor, variances: Tensor, channels: int) -> float:
    """The shrinkage with the least expected squared error, of channels whose variances are 1 on average."""
    if not channels:
        return 1.0
    count = len(residuals)
    squares = float(variances.square().sum())  # of S's entries
    beta = (float(residuals.square().sum(1).square().sum()) / count - squares) / count
    delta = squares - 2 * float(variances.sum()) + channels
    return min(max(beta, 0.0) / delta, 1.0) if delta > 0 else 1.0


@dataclass(frozen=True, eq=False)
class ClassDistances(ChannelAverages):
    """Half the squared distance of every layer to the nearest class."""

    gaussians: tuple[LayerGaussians, ...]  # one per layer
    classes: Annotated[Tensor, ArrayRule("n", dtype=torch.int64, above=-1)]  # of the images with residuals
    ids: tuple[str, ...]  # of these

    def join(self, values: Mapping[str, Tensor], logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (images, layers)."""
        return torch.stack(self.by_layer(values, ids), 1)

    def cacheable_parts(self) -> tuple[Extractor, ...]:
        """Returns the averages of all layers."""
        return (ChannelAverages(self.layers),)

    def finish(self, features: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (images, layers) from the averages."""
        widths = [len(one.centre) for one in self.gaussians]
        return torch.stack(self.by_layer(dict(zip(self.layers, torch.split(features, widths, 1), strict=True)), ids), 1)

    def by_layer(self, averages: Mapping[str, Tensor], ids: Sequence[str]) -> list[Tensor]:
        """Returns half the squared distance to the nearest class, (N,), of those layers that have averages (N, C)."""
        # An image that the Gaussians came from is compared with those of the other images.
        rows, places = same_source(ids, self.ids).nonzero(as_tuple=True)
        features = []
        pairs = zip(self.layers, self.gaussians, strict=True)
        for layer, gaussians in [pair for pair in pairs if pair[0] in averages]:
            squared = gaussians.distances(averages[layer])
            if len(rows):
                residuals, classes = gaussians.residuals[places].double(), self.classes[places]
                own = gaussians.distances_leaving_out(averages[layer][rows], residuals, classes)
                squared = squared.index_put((rows,), own)
            features.append(squared.amin(1) / 2)
        return features


@dataclass(frozen=True, eq=False)
class PerturbedClassDistances(RunningExtractor):
    """The distances of images that are moved towards their nearest class, by each layer for itself."""

    magnitude: float  # of the step, as a share of the range of pixels
    distances: ClassDistances  # of images as they are

    def feature_names(self) -> tuple[str, ...]:
        """Returns the layers."""
        return self.distances.layers

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns (images, layers); what autograd holds for the images at work fits the memory."""
        size, rows = batch_size(classifier, tuple(images.shape[1:]), gradients=True), []
        with torch.inference_mode(False), frozen(classifier.module):
            for start in range(0, len(images), size):
                part = slice(start, start + size)
                rows.append(self._part(classifier, images[part].detach().clone(), ids[part]))
        return torch.cat(rows)

    def _part(self, classifier: Classifier, images: Tensor, ids: Sequence[str]) -> Tensor:
        low, high = classifier.bounds
        step, layers = self.magnitude * (high - low), self.distances.layers
        with torch.enable_grad():
            leaf = images.to(classifier.device, classifier.dtype).requires_grad_()
            (averages,) = observe(classifier, leaf, [ChannelAverages(layers)]).values
            sums = [column.sum() for column in self.distances.by_layer(averages, ids)]
        columns = []
        for layer, total in zip(layers, sums, strict=True):
            (gradient,) = torch.autograd.grad(total, leaf, retain_graph=True)
            with torch.no_grad():
                moved = leaf - step * torch.where(gradient >= 0, 1.0, -1.0).to(leaf)
                (averages,) = observe(classifier, moved, [ChannelAverages((layer,))]).values
                columns += self.distances.by_layer(averages, ids)
        return torch.stack(columns, 1)


@register_detector
@dataclass(frozen=True, kw_only=True)
class Mahalanobis(Method):
    """One feature per layer."""

    # None for all layers that compute something, but for the soft-max and BatchNorm, which repeats the layer before it
    layers: tuple[str, ...] | None = layer_names()
    # Of the covariance towards that of independent channels. 0: the authors' pseudo-inverse; "auto": Ledoit 2004.
    shrinkage: float | str = number("auto", "auto", least=0, most=1)
    magnitude: float | str = number(0.0, "cv", least=0)  # m, a share of the range of pixels; "cv": from the authors'

    id: ClassVar[str] = "mahalanobis"
    extractors: ClassVar[tuple[type[Extractor], ...]] = (ClassDistances, PerturbedClassDistances)
    authors_head: ClassVar[str] = "logistic"
    clean_images: ClassVar[CleanImages] = "optional"  # the authors' Gaussians come from all training images
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {"rules": "authors", "shrinkage": 0.0, "magnitude": "cv"}
    }

    @property
    def needs(self) -> frozenset[str]:
        """A magnitude asks for gradients."""
        return frozenset({"forward"} if self.magnitude == 0 else {"forward", "gradients"})

    def fit_extractor(self, classifier: Classifier, data: FitData) -> ClassDistances | PerturbedClassDistances:
        """Returns the Gaussians of every layer, and the magnitude."""
        clean = data.labelled
        available = classifier.layer_list(tuple(clean.images.shape[1:])).layers
        layers = tuple(
            layer.name
            for layer in select_layers(available, self.layers, pass_through=False)
            if self.layers is not None or (layer.name != SOFTMAX and "BatchNorm" not in layer.kind)
        )
        title, show = f"{self.name}: averages", data.show_progress
        single = [ChannelAverages((layer,)) for layer in layers]
        averages = extract(classifier, single, clean.images, clean.ids, label=title, show_progress=show)
        known = sorted(set(clean.labels.tolist()))
        alone = len(known) == len(clean)  # no class has two images: nothing is known of a spread within classes
        classes = torch.tensor([0 if alone else known.index(label) for label in clean.labels.tolist()])
        delta = None if self.shrinkage == "auto" else float(self.shrinkage)
        fits = [fit_gaussians(rows.cpu(), classes, delta) for rows in averages]
        # Residuals are held for the sources of the examples alone: no other image is asked about again.
        sources = set(data.examples.ids)
        again = [place for place, name in enumerate(clean.ids) if name in sources]
        # float32 is enough for them unless the covariance may be singular
        some = [one.residuals[again].to(torch.float32 if one.shrinkage else torch.float64) for one in fits]
        gaussians = tuple(replace(one, residuals=rows) for one, rows in zip(fits, some, strict=True))
        distances = ClassDistances(layers, gaussians, classes[again], tuple(clean.ids[place] for place in again))
        return self._with_magnitude(classifier, data, distances)

    def _with_magnitude(
        self, classifier: Classifier, data: FitData, distances: ClassDistances
    ) -> ClassDistances | PerturbedClassDistances:
        """The distances with the magnitude of the options, or with the one that separates held-out sources best."""
        tried = MAGNITUDES if self.magnitude == "cv" else (float(self.magnitude),)
        trials = {m: PerturbedClassDistances(m, distances) if m else distances for m in tried}
        if len(trials) == 1:
            return trials[tried[0]]
        few, aurocs = few_sources(data.examples, self.seed), {}
        for magnitude, trial in trials.items():
            title = f"{self.name}: magnitude {magnitude:g}"
            table = feature_table(classifier, trial, few, title, data.show_progress, data.cache)
            aurocs[magnitude] = held_out_auroc(table.features.numpy(), table, self.seed)
        return trials[max(aurocs, key=lambda m: aurocs[m])]
