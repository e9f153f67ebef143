"""Whether posteriors look like draws from a generalized Gaussian distribution: hypothesis H1, image by image."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benfourier.data.draws import seed_of
from benfourier.errors import InputError, check_whole
from benfourier.theory.fitting import SHAPE_LEAST, SHAPE_MOST
from benfourier.theory.ggd import GGD
from benfourier.theory.ks import asymptotic_p, exact_p
from benfourier.theory.many_fits import Fits, fit_rows

Floats = NDArray[np.float64]
WORK = 5 * 10**9  # steps that a table of exact p may take
SHAPES = np.geomspace(SHAPE_LEAST, SHAPE_MOST, 16)
DRAWN = 1000  # samples of each of them


@dataclass(frozen=True, eq=False)
class Goodness:
    """What was found for each image that has a fit.

    Args:
        distance: mean D over the draws, (N,).
        asymptotic: mean p over the draws.
        exact: the same; None if the number of classes makes it too dear.
        bootstrap: p of the parametric bootstrap at the fitted shape; None if none was asked for.
        any_shape: the largest p of all shapes; None if no bootstrap was asked for.
        shapes: of the fits.
        at_bound: whether the shape ended on an edge of the search.
        unfitted: images whose posteriors are all the same.
    """

    distance: Floats
    asymptotic: Floats
    exact: Floats | None
    bootstrap: Floats | None
    any_shape: Floats | None
    shapes: Floats
    at_bound: NDArray[np.bool_]
    unfitted: int


def goodness(
    posteriors: Floats, names: Sequence[str], *, seed: int, draws: int, bootstrap: int, samples: int
) -> Goodness:
    """Returns the tests of every row of posteriors (N, classes) against the distribution fitted to it.

    Two-sample tests take the row and `samples` draws from its fit. How many draws fall between two neighbours of the
    row is all that D depends on, so these counts are drawn at once: they are multinomial.

    Args:
        posteriors: one row per image.
        names: one per row; with the seed they decide its draws.
        seed: of all draws.
        draws: two-sample tests per row.
        bootstrap: samples that are drawn from the fit and fitted again; 0 for none.
        samples: drawn from the fit for one two-sample test.
    """
    check_whole("draws", draws)
    check_whole("samples", samples)
    check_whole("bootstrap", bootstrap, least=0)
    if len(names) != len(posteriors):
        raise InputError(f"there are {len(posteriors)} rows and {len(names)} names; each row needs one")
    fits = fit_rows(posteriors)
    below = fits.cdf(np.sort(posteriors, axis=1))
    rows = np.flatnonzero(fits.found)
    asymptotic, exact = _tables(posteriors.shape[1], samples)
    found = np.full((4, len(posteriors)), np.nan)
    for row in rows.tolist():
        random = np.random.default_rng(seed_of(seed, names[row]))
        gaps = _gaps(below[row], samples, draws, random)
        found[0, row], found[1, row] = gaps.mean() / (len(asymptotic) - 1), asymptotic[gaps].mean()
        found[2, row] = exact[gaps].mean() if exact is not None else np.nan
        if bootstrap:
            found[3, row] = _bootstrap_p(fits, row, below[row], bootstrap, random)
    distance, plain, counted, drawn = found[:, rows]
    return Goodness(
        distance,
        plain,
        counted if exact is not None else None,
        drawn if bootstrap else None,
        _any_shape_p(below[rows], seed) if bootstrap else None,
        fits.shapes[rows],
        fits.at_bound[rows],
        len(posteriors) - len(rows),
    )


@cache
def _tables(classes: int, samples: int) -> tuple[Floats, Floats | None]:
    """Asymptotic and exact p of D = 0, 1/lcm, …, 1, which are all that it can be."""
    steps = math.lcm(classes, samples)
    possible = np.arange(steps + 1) / steps
    work = (steps + 1) * (classes + samples) * min(classes, samples)
    exact = exact_p(possible, classes, samples) if work <= WORK else None
    return asymptotic_p(possible, classes, samples), exact


def _gaps(below: Floats, samples: int, draws: int, random: np.random.Generator) -> NDArray[np.int64]:
    """D·lcm of two-sample tests (draws,), given the fitted cdf at the sorted row."""
    classes = len(below)
    between = np.diff(below, prepend=0.0, append=1.0).clip(min=0.0)
    counts = random.multinomial(samples, between / between.sum(), size=draws)
    up_to = classes * np.cumsum(counts[:, :-1], axis=1)  # at each number of the row, where the other side makes a step
    steps = samples * np.arange(classes + 1)
    far = np.maximum(np.abs(steps[1:] - up_to), np.abs(steps[:-1] - up_to)).max(axis=1)
    gaps: NDArray[np.int64] = far // math.gcd(classes, samples)
    return gaps


def _bootstrap_p(fits: Fits, row: int, below: Floats, number: int, random: np.random.Generator) -> float:
    """P(D to its own fit ≥ that of the row) among samples from the row's fit, each fitted again.

    D to a fit is free of location and scale, so the samples are drawn with 0 and 1.
    """
    drawn = np.sort(GGD(float(fits.shapes[row])).sample((number, len(below)), random), axis=1)
    far = _to_fit(fit_rows(drawn).cdf(drawn))
    return float((1 + np.count_nonzero(far >= _to_fit(below[None])[0])) / (number + 1))


def _any_shape_p(below: Floats, seed: int) -> Floats:
    """The largest bootstrap p that any shape gives: valid even where a few numbers tell little of the shape."""
    far = _to_fit(below)
    worse = [DRAWN - np.searchsorted(drawn, far, side="left") for drawn in _refitted(below.shape[1], seed)]
    return np.asarray((1 + np.max(worse, axis=0)) / (DRAWN + 1))


@cache
def _refitted(classes: int, seed: int) -> Floats:
    """D of samples to their own fits, in ascending order, for each of SHAPES, (shapes, DRAWN)."""
    found = []
    for shape in SHAPES.tolist():
        random = np.random.default_rng(seed_of(seed, f"shape {shape}"))
        drawn = np.sort(GGD(shape).sample((DRAWN, classes), random), axis=1)
        found.append(np.sort(_to_fit(fit_rows(drawn).cdf(drawn))))
    return np.stack(found)


def _to_fit(below: Floats) -> Floats:
    """D between sorted rows and the distributions whose cdf is given at their numbers."""
    steps = np.arange(below.shape[1] + 1) / below.shape[1]
    far: Floats = np.maximum(steps[1:] - below, below - steps[:-1]).max(axis=1)
    return far
