"""How well a generalized Gaussian distribution fits each layer, and what mbf makes of noise with such shapes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier import kernels
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.features import FeatureTable
from benfourier.detectors.heads import fit_head
from benfourier.detectors.mbf import features
from benfourier.errors import BenfourierError
from benfourier.evaluation.studies.ks import distance_to_fit
from benfourier.evaluation.studies.study import DataPart, ImageKind, Job, digest_of_network, image_kinds
from benfourier.kernels.sample import rows_of
from benfourier.metrics.bootstrap import Bootstrap
from benfourier.metrics.ranking import auroc
from benfourier.metrics.scores import ScoreSample
from benfourier.models.classifier import Classifier
from benfourier.models.forward import batch_size, observe
from benfourier.models.layers import Layer, select_layers
from benfourier.store.artifact import digest_of
from benfourier.store.records import LayerFit, NoiseControl
from benfourier.store.vocabulary import ACTIVATIONS, CLEAN, MBF, NOISE_CONTROLS, NOISY, OWN_SHAPES, Split
from benfourier.theory.ggd_fit import fit_rows

SOURCES: Mapping[str, int] = {Split.TRAIN: 240, Split.TEST: 120}  # images, at most
ENTRIES = 512  # of an activation that a fit looks at
ORDERS = 16
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LayerFits:
    """Fits to the activations of each image (rows) in each layer (columns)."""

    shapes: Floats  # of the best fit; NaN where an activation is constant
    distances: Floats  # Kolmogorov-Smirnov distance D to it
    offsets: Floats  # |mean| / standard deviation


def layer_jobs(
    classifier: Classifier, parts: Sequence[DataPart], attacks: Sequence[str], *, seed: int = 0
) -> Iterator[Job]:
    """Yields the fits of every kind in train and test, and the noise controls of each of the attacks."""
    kinds: dict[str, dict[str, ImageKind]] = {}  # of the first images, by split and name
    for part in (part for part in parts if part.split in SOURCES):
        count = min(SOURCES[part.split], len(part.examples))
        first = DataPart(part.source, part.split, part.examples.take(range(count), "first"))
        names = (CLEAN, NOISY, *attacks)
        kinds[str(part.split)] = {kind.name: kind for kind in image_kinds(first) if kind.name in names}
    fits_of = cache(lambda kind: fit_layers(classifier, kind.labelled.images, seed=seed))  # controls use them again
    network, study = digest_of_network(classifier), _LayerStudy(classifier, kinds, fits_of, seed)
    identities = [kind.identity for split in SOURCES for kind in kinds[split].values()]

    def job(title: str, make: Callable[[str], Iterator[LayerFit | NoiseControl]], *names: str) -> Job:
        return Job(title, (digest_of((network, "layers", str(seed), *names, *identities)),), make)

    for split in SOURCES:
        for name, kind in kinds[split].items():
            yield job(f"{split}: {name}", partial(study.layer_fit, kind), "fit", split, name)
    for attack in (name for name in attacks if name in kinds[Split.TRAIN] and name in kinds[Split.TEST]):
        for what in NOISE_CONTROLS:
            yield job(f"{what} for {attack}", partial(study.control, attack, what), attack, what)


@dataclass(frozen=True, eq=False)
class _LayerStudy:
    """What the jobs of one study share."""

    classifier: Classifier
    kinds: Mapping[str, Mapping[str, ImageKind]]  # by split and name
    fits_of: Callable[[ImageKind], LayerFits]
    seed: int

    def layer_fit(self, kind: ImageKind, key: str) -> Iterator[LayerFit]:
        fits = self.fits_of(kind)

        def over_images(values: Floats, average: Callable[[Floats], object]) -> NDArray[np.float32]:
            columns = [column[np.isfinite(column)] for column in values.T]
            return np.array([average(column) if len(column) else np.nan for column in columns], np.float32)

        yield LayerFit(
            key=key,
            source=kind.part.source,
            split=kind.part.split,
            kind=kind.name,
            layers=tuple(layer.name for layer in mbf_layers(self.classifier, kind.labelled.images)),
            images=len(kind.labelled),
            distance=over_images(fits.distances, np.mean),
            shape=over_images(fits.shapes, np.median),
            offset=over_images(fits.offsets, np.mean),
        )

    def control(self, attack: str, what: str, key: str) -> Iterator[NoiseControl]:
        """AUROC of mbf fitted to train and tested on test: on the activations themselves, or on noise."""
        fit, test = (self.rows(split, attack, what, self.seed + place) for place, split in enumerate(SOURCES))
        try:
            scores = fit_head(make_method(MBF).head_options, fit)[0].score(test.features).numpy()
        except BenfourierError:
            return  # too few rows of one side
        yield NoiseControl(
            key=key,
            source=self.kinds[Split.TEST][attack].part.source,
            attack=attack,
            features=what,
            sources=len(set(fit.sources)),
            tested=len(set(test.sources)),
            auroc=Bootstrap(self.seed).estimate(auroc, ScoreSample(scores, test.adversarial, test.sources)),
        )

    def rows(self, split: str, attack: str, what: str, seed: int) -> FeatureTable:
        """Features of clean, noisy and attacked images of the sources on which the attack succeeded."""
        clean, noisy, attacked = (self.kinds[split][name] for name in (CLEAN, NOISY, attack))
        succeeded, clean_rows = set(attacked.labelled.ids), {name: row for row, name in enumerate(clean.labelled.ids)}
        layers, random = mbf_layers(self.classifier, clean.labelled.images), np.random.default_rng(seed)
        values, sources, names = [], list[str](), list[str]()
        for kind in (clean, noisy, attacked):
            rows = [row for row, name in enumerate(kind.labelled.ids) if name in succeeded]
            images, ids = kind.labelled.images[rows], [kind.labelled.ids[row] for row in rows]
            if what == ACTIVATIONS:
                magnitudes = features(self.classifier, images, ORDERS, entries=None, show_progress=False)
                values.append(torch.from_numpy(magnitudes).double())
            elif what == OWN_SHAPES:
                values.append(_noise_features(self.fits_of(kind).shapes[rows], layers, random))
            else:
                twins = self.fits_of(clean).shapes[[clean_rows[name] for name in ids]]
                values.append(_noise_features(twins, layers, random))
            sources += ids
            names += [kind.name] * len(ids)
        adversarial = np.array([name == attack for name in names])
        return FeatureTable(torch.cat(values), adversarial, tuple(sources), tuple(names))


def _noise_features(shapes: Floats, layers: Sequence[Layer], random: np.random.Generator) -> Tensor:
    """|â_n| of noise with these shapes (rows, layers), as many entries as the layers have."""
    values = []
    for column, layer in zip(shapes.T, layers, strict=True):
        power = 1 / np.nan_to_num(column, nan=2.0)[:, None]  # an activation without a fit becomes Gaussian noise
        size = (len(column), layer.entries)
        with np.errstate(under="ignore"):
            samples = random.standard_gamma(np.broadcast_to(power, size)) ** power * random.choice([-1.0, 1.0], size)
        values.append(kernels.magnitudes(torch.from_numpy(samples), ORDERS).double())
    return torch.cat(values, dim=1)


def mbf_layers(classifier: Classifier, images: Tensor) -> tuple[Layer, ...]:
    """Returns the layers that mbf observes by default."""
    return select_layers(classifier.layer_list(tuple(images.shape[1:])).layers, None, pass_through=False)


def fit_layers(classifier: Classifier, images: Tensor, *, seed: int = 0) -> LayerFits:
    """Returns the fits to every image's activations, each to at most ENTRIES of them, the same for all images."""
    classifier.check_images(images)
    layers, random = mbf_layers(classifier, images), np.random.default_rng(seed)
    counts = {layer.name: (layer.entries, min(layer.entries, ENTRIES)) for layer in layers}
    places = {name: np.sort(random.choice(*count, replace=False)) for name, count in counts.items()}
    observer = _SomeEntries({name: torch.from_numpy(each) for name, each in places.items()})
    with torch.inference_mode():
        parts = torch.split(images, batch_size(classifier, tuple(images.shape[1:])))
        values = [observe(classifier, part, [observer]).values[0] for part in parts]
    fits = [_fit(torch.cat([each[layer.name] for each in values]).double().numpy()) for layer in layers]
    return LayerFits(*(np.stack(column, axis=1) for column in zip(*fits, strict=True)))


@dataclass(frozen=True)
class _SomeEntries:
    """Observes some entries of each layer's activation."""

    places: Mapping[str, Tensor]

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(self.places)

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        return rows_of(activation)[:, self.places[layer]].cpu()


def _fit(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """Shapes, distances and offsets of one layer's rows."""
    spread = rows.std(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        offsets = np.where(spread > 0, np.abs(rows.mean(axis=1)) / spread, np.nan)
    fits = fit_rows(rows)
    distances = distance_to_fit(fits.cdf(np.sort(rows, axis=1)))
    return fits.shapes, np.where(fits.exists, distances, np.nan), offsets
