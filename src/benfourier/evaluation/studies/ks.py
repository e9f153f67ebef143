"""Kolmogorov-Smirnov studies of the soft-max layer.

H1: the posteriors of an image follow a generalized Gaussian distribution. H2: the MBF features of two sets of images
follow the same distribution.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.seeds import image_seed
from benfourier.errors import InputError, check_seed, check_whole
from benfourier.evaluation.studies.study import DataPart, ImageKind, Job, digest_of_network, image_kinds
from benfourier.metrics.ks import asymptotic_p, distances, holm
from benfourier.models.classifier import Classifier
from benfourier.models.forward import batch_size, observe
from benfourier.models.module import softmax
from benfourier.store.artifact import digest_of
from benfourier.store.records import KsResult
from benfourier.store.vocabulary import KS_PAIRS, KS_POSTERIORS, KS_SOURCES, SIGNIFICANCE, Split
from benfourier.theory.coefficients import magnitudes_of_rows
from benfourier.theory.ggd import GGD
from benfourier.theory.ggd_fit import SHAPE_LEAST, SHAPE_MOST, fit_rows

SHAPES = np.geomspace(SHAPE_LEAST, SHAPE_MOST, 16)  # that the p for any shape is taken over
Floats = NDArray[np.float64]
Kinds = tuple[ImageKind, ...]  # that are compared: one with its fits, or two
Tests = tuple[int, Floats, Floats, dict[str, float]]  # images, D and p of each test, and what else a record holds


@dataclass(frozen=True, eq=False)
class SoftmaxOutput:
    """Posteriors (N, classes) and |â_n| of each image's posteriors (N, orders), both float64."""

    posteriors: Floats
    magnitudes: Floats


@dataclass(frozen=True, eq=False)
class FitTests:
    """Tests of each image that has a fit, (N,)."""

    distance: Floats  # mean D over the draws
    p: Floats  # mean asymptotic p over the draws
    any_shape: Floats | None  # the largest p of all shapes; None if no bootstrap was asked for
    shapes: Floats  # of the fits
    at_bound: NDArray[np.bool_]  # whether the shape ended on an edge of the search
    unfitted: int  # images whose posteriors are all the same


def ks_jobs(
    classifier: Classifier,
    parts: Sequence[DataPart],  # those called train are compared with test of the same source and with out-of-sample
    *,
    seed: int = 0,  # of the draws of H1, which belong to an image
    draws: int = 1000,  # two-sample tests per image in H1, whose p are averaged
    bootstrap: int = 1000,  # samples per shape that are fitted again, for the valid p of H1; 0 for none
    samples: int = 500,  # numbers drawn from an image's fit for one test
    orders: int = 16,  # MBF features in H2
) -> Iterator[Job]:
    """Yields H1 of every kind of every part, H2 of the paper's pairs, and H2 of every kind between two parts.

    Pairs of which an attack is missing or never succeeded are left out.
    """
    check_seed(seed)
    settings = {"draws": draws, "samples": samples, "bootstrap": bootstrap}
    network = digest_of_network(classifier)
    # several jobs need the output for one kind
    output_of = cache(lambda kind: softmax_output(classifier, kind.labelled.images, orders))

    def compare(study: str, source: str, split: str, name: str, kinds: Kinds, key: str) -> Iterator[KsResult]:
        sets = [output_of(kind) for kind in kinds]
        if study == KS_POSTERIORS:
            names = [f"{name}\0{image}" for image in kinds[0].labelled.ids]
            images, distance, p, more = _compare_with_fits(sets[0], names, seed, settings)
        else:
            images, distance, p, more = _compare_orders(*sets)
        adjusted = holm(p)
        corrected = {"p-adjusted": float(adjusted.min(initial=1.0)), "rejected": _mean(adjusted < SIGNIFICANCE)}
        yield KsResult(key, study, source, split, name, images, _mean(distance), _mean(p), {**corrected, **more})

    for study, source, split, name, kinds in _comparisons(parts):
        decisive = repr((seed, settings)) if study == KS_POSTERIORS else repr(orders)  # H2 draws nothing
        key = digest_of((network, study, decisive, *(kind.identity for kind in kinds)))
        yield Job(f"{study} {name}", (key,), partial(compare, study, source, split, name, kinds))


def _comparisons(parts: Sequence[DataPart]) -> Iterator[tuple[str, str, str, str, Kinds]]:
    """Study, source, split, what is compared as text, and its images."""
    kinds = {part: {kind.name: kind for kind in image_kinds(part)} for part in parts}
    for part, named in kinds.items():
        for name, kind in named.items():
            yield KS_POSTERIORS, part.source, part.split, name, (kind,)
    for part, named in kinds.items():
        for study, (one, other) in KS_PAIRS.items():
            if one in named and other in named:
                yield study, part.source, part.split, f"{one}|{other}", (named[one], named[other])
    for part in (part for part in parts if part.split == Split.TRAIN):
        for beside in parts:
            is_test = beside.split == Split.TEST and beside.source == part.source
            if beside.split == Split.OUT_OF_SAMPLE or is_test:
                for name in (name for name in kinds[part] if name in kinds[beside]):
                    both = (kinds[part][name], kinds[beside][name])
                    yield KS_SOURCES, f"{part.split}|{beside.split}", beside.split, name, both


def _compare_with_fits(output: SoftmaxOutput, names: Sequence[str], seed: int, settings: Mapping[str, int]) -> Tests:
    """H1: one test for each image that has a fit."""
    tests = fit_tests(output.posteriors, names, seed=seed, **settings)
    more: dict[str, float] = {
        **settings,
        "unfitted": tests.unfitted,
        "at-bound": _mean(tests.at_bound),
        "shape": float(np.median(tests.shapes)) if len(tests.shapes) else float("nan"),
    }
    if tests.any_shape is not None:
        below = _mean(tests.any_shape < SIGNIFICANCE)
        more |= {"p-any-shape": _mean(tests.any_shape), f"any-shape-below-{SIGNIFICANCE}": below}
    return len(tests.distance), tests.distance, tests.p, more


def _compare_orders(one: SoftmaxOutput, other: SoftmaxOutput) -> Tests:
    """H2: one test for each order."""
    n, m = len(one.magnitudes), len(other.magnitudes)
    distance = distances(one.magnitudes.T, other.magnitudes.T)
    more = {"images-larger": max(n, m), "distance-largest": float(distance.max()), "tests": len(distance)}
    return min(n, m), distance, asymptotic_p(distance, n, m), more


def _mean(values: Floats | NDArray[np.bool_]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def softmax_output(classifier: Classifier, images: Tensor, orders: int) -> SoftmaxOutput:
    """Returns the posteriors of images and their MBF features, in float64."""
    with torch.no_grad():
        parts = torch.split(images, batch_size(classifier, tuple(images.shape[1:])))
        posteriors = torch.cat([softmax(observe(classifier, part, []).logits).cpu() for part in parts]).numpy()
    return SoftmaxOutput(posteriors, magnitudes_of_rows(posteriors, orders, centre=True))


def fit_tests(
    posteriors: Floats, names: Sequence[str], *, seed: int, draws: int, bootstrap: int, samples: int
) -> FitTests:
    """Returns the tests of every row of posteriors (N, classes) against the distribution fitted to it.

    Two-sample tests take the row and `samples` draws from its fit. How many draws fall between two neighbours of the
    row is all that D depends on, so these counts are drawn at once: they are multinomial. Names, one per row, decide
    its draws together with the seed. The other options are those of `ks_jobs`.
    """
    check_whole("draws", draws)
    check_whole("samples", samples)
    check_whole("bootstrap", bootstrap, least=0)
    if len(names) != len(posteriors):
        raise InputError(f"there are {len(posteriors)} rows and {len(names)} names; each row needs one")
    fits = fit_rows(posteriors)
    below = fits.cdf(np.sort(posteriors, axis=1))
    rows = np.flatnonzero(fits.exists)
    table = _p_table(posteriors.shape[1], samples)
    distance, p = np.empty(len(rows)), np.empty(len(rows))
    for place, row in enumerate(rows.tolist()):
        random = np.random.default_rng(image_seed(seed, names[row]))
        steps = _distance_steps(below[row], samples, draws, random)
        distance[place], p[place] = steps.mean() / (len(table) - 1), table[steps].mean()
    any_shape = _any_shape_p(below[rows], seed, bootstrap) if bootstrap else None
    return FitTests(distance, p, any_shape, fits.shapes[rows], fits.at_bound[rows], len(posteriors) - len(rows))


@cache
def _p_table(classes: int, samples: int) -> Floats:
    """Asymptotic p of D = 0, 1/lcm, …, 1: it can have no other value."""
    steps = math.lcm(classes, samples)
    return asymptotic_p(np.arange(steps + 1) / steps, classes, samples)


def _distance_steps(below: Floats, samples: int, draws: int, random: np.random.Generator) -> NDArray[np.int64]:
    """D·lcm of two-sample tests (draws,), from the fitted cdf at the sorted row."""
    classes = len(below)
    between = np.diff(below, prepend=0.0, append=1.0).clip(min=0.0)
    counts = random.multinomial(samples, between / between.sum(), size=draws)
    up_to = classes * np.cumsum(counts[:, :-1], axis=1)  # at each number of the row, where the other side makes a step
    steps = samples * np.arange(classes + 1)
    distance = np.maximum(np.abs(steps[1:] - up_to), np.abs(steps[:-1] - up_to)).max(axis=1)
    result: NDArray[np.int64] = distance // math.gcd(classes, samples)
    return result


def _any_shape_p(below: Floats, seed: int, bootstrap: int) -> Floats:
    """The largest bootstrap p that any shape gives: valid even where a few numbers say little of the shape."""
    distance = distance_to_fit(below)
    samples = _refitted_distances(below.shape[1], seed, bootstrap)
    worse = [bootstrap - np.searchsorted(each, distance, side="left") for each in samples]
    return np.asarray((1 + np.max(worse, axis=0)) / (bootstrap + 1))


@cache
def _refitted_distances(classes: int, seed: int, bootstrap: int) -> Floats:
    """D of samples to their own fits, in ascending order, for each of SHAPES, (shapes, bootstrap).

    D to its own fit is free of location and scale, so the samples are drawn with 0 and 1.
    """
    result = []
    for shape in SHAPES.tolist():
        random = np.random.default_rng(image_seed(seed, f"shape {shape}"))
        samples = np.sort(GGD(shape).sample((bootstrap, classes), random), axis=1)
        result.append(np.sort(distance_to_fit(fit_rows(samples).cdf(samples))))
    return np.stack(result)


def distance_to_fit(below: Floats) -> Floats:
    """Returns D between sorted rows and the distributions whose cdf is given at their numbers."""
    steps = np.arange(below.shape[1] + 1) / below.shape[1]
    distance: Floats = np.maximum(steps[1:] - below, below - steps[:-1]).max(axis=1)
    return distance
