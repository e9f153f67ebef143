"""Kolmogorov-Smirnov studies of the soft-max layer.

H1: the posteriors of an image follow a generalized Gaussian distribution. H2: the MBF numbers of two sets of images
follow the same distribution.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from benfourier import progress
from benfourier.errors import check_seed, check_whole
from benfourier.evaluation.goodness import goodness
from benfourier.evaluation.parts import CLEAN, NOISY, OUTSIDE, TEST, TRAIN, Kind, Part, digest_of_network, kinds_of
from benfourier.evaluation.softmax_layer import Heard, hear_softmax
from benfourier.store.digest import digest_of
from benfourier.store.records import KsResult
from benfourier.subjects.subject import Subject
from benfourier.theory.ks import asymptotic_p, distances, exact_p, holm

LEVEL = 0.05
PAIRS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "h2.1": (CLEAN, NOISY),
        "h2.2": (CLEAN, "bim"),
        "h2.3": ("bim", "deepfool"),
        "h2.4": ("cw-l2", "r-pgd"),
    }
)
BETWEEN = "h2-sources"
EXACT = 2000  # images of a set, up to which H2 also gives the exact p
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Job:
    study: str
    source: str
    split: str
    name: str
    kinds: tuple[Kind, ...]


def ks_study(
    subject: Subject,
    parts: Sequence[Part],
    *,
    seed: int = 0,
    draws: int = 1000,
    bootstrap: int = 200,
    samples: int = 500,
    orders: int = 16,
    known: Collection[str] = (),
    show_progress: bool | None = None,
) -> Iterator[KsResult]:
    """Yields H1 of every kind of every part, H2 of the paper's pairs, and H2 of every kind between two parts.

    Pairs of which an attack is missing or never succeeded are left out.

    Args:
        subject: the classifier.
        parts: examples; those called train are compared with test of the same source and with out-of-sample.
        seed: of the draws of H1, which belong to an image.
        draws: two-sample tests per image in H1, whose p are averaged.
        bootstrap: samples per image that are fitted again, for the valid p of H1; 0 for none.
        samples: numbers drawn from an image's fit for one test.
        orders: MBF numbers in H2.
        known: keys of records that are there already; they are not made again.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    for name, value in (("draws", draws), ("samples", samples), ("orders", orders)):
        check_whole(name, value)
    check_whole("bootstrap", bootstrap, least=0)
    check_seed(seed)
    settings = {"draws": draws, "samples": samples, "bootstrap": bootstrap}
    network = digest_of_network(subject)
    decisive = {"h1": repr((seed, settings))}  # the others draw nothing
    keyed = {
        digest_of((network, job.study, decisive.get(job.study, repr(orders)), *(k.identity for k in job.kinds))): job
        for job in _jobs(parts)
    }
    wanted = {key: job for key, job in keyed.items() if key not in known}
    heard: dict[Kind, Heard] = {}
    with progress.bar(len(wanted), "KS tests", show=show_progress) as advance:
        for key, job in wanted.items():
            advance(0, f"{job.study} {job.name}")
            for kind in job.kinds:
                heard[kind] = heard.get(kind) or hear_softmax(subject, kind.images, orders)
            sets = [heard[kind] for kind in job.kinds]
            yield _fitting(key, job, sets[0], seed, settings) if job.study == "h1" else _comparing(key, job, *sets)
            advance(1)


def _jobs(parts: Sequence[Part]) -> Iterator[_Job]:
    kinds = {part: {kind.name: kind for kind in kinds_of(part)} for part in parts}
    for part, there in kinds.items():
        for name, kind in there.items():
            yield _Job("h1", part.source, part.split, name, (kind,))
    for part, there in kinds.items():
        for study, (one, other) in PAIRS.items():
            if one in there and other in there:
                yield _Job(study, part.source, part.split, f"{one}|{other}", (there[one], there[other]))
    for part in (part for part in parts if part.split == TRAIN):
        for beside in parts:
            if beside.split == OUTSIDE or (beside.split == TEST and beside.source == part.source):
                for name in (name for name in kinds[part] if name in kinds[beside]):
                    both = (kinds[part][name], kinds[beside][name])
                    yield _Job(BETWEEN, f"{part.split}|{beside.split}", beside.split, name, both)


def _fitting(key: str, job: _Job, heard: Heard, seed: int, settings: Mapping[str, int]) -> KsResult:
    """The record of H1: means over the images."""
    names = [f"{job.name}\0{name}" for name in job.kinds[0].ids]
    found = goodness(heard.posteriors, names, seed=seed, **settings)
    more: dict[str, float] = {
        **settings,
        "unfitted": found.unfitted,
        "at-bound": _mean(found.at_bound),
        "shape": _median(found.shapes),
    }
    if found.exact is not None:
        more["p-exact"] = _mean(found.exact)
    for name, p in (("bootstrap", found.bootstrap), ("any-shape", found.any_shape)):
        if p is not None:
            more |= {f"p-{name}": _mean(p), f"{name}-below-{LEVEL}": _mean(p < LEVEL)}
    return _record(key, job, len(found.distance), found.distance, found.asymptotic, more)


def _comparing(key: str, job: _Job, one: Heard, other: Heard) -> KsResult:
    """The record of H2: means over the orders, one test each."""
    n, m = len(one.magnitudes), len(other.magnitudes)
    far = distances(one.magnitudes.T, other.magnitudes.T)
    more: dict[str, float] = {"images-larger": max(n, m), "distance-largest": float(far.max()), "tests": len(far)}
    if max(n, m) <= EXACT:
        more["p-exact"] = _mean(exact_p(far, n, m))
    return _record(key, job, min(n, m), far, asymptotic_p(far, n, m), more)


def _record(key: str, job: _Job, images: int, far: Floats, p: Floats, more: Mapping[str, float]) -> KsResult:
    adjusted = holm(p)
    corrected = {"p-adjusted": float(adjusted.min(initial=1.0)), "rejected": _mean(adjusted < LEVEL)}
    return KsResult(
        key, job.study, job.source, job.split, job.name, images, _mean(far), _mean(p), {**corrected, **more}
    )


def _mean(values: Floats | NDArray[np.bool_]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else float("nan")
