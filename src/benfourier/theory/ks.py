"""The two-sample Kolmogorov-Smirnov test, for many pairs of samples at once, and Holm's correction.

D = sup_t |F_n(t) − G_m(t)|. The asymptotic p is Q(√(nm/(n+m))·D) with Kolmogorov's Q, as SciPy 1.3 and 1.4 had it under
mode="asymp"; later versions use the law of one sample of round(nm/(n+m)) numbers. The exact p counts lattice paths.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from benfourier.errors import InputError, check_whole
from benfourier.theory.ggd import check_probability
from benfourier.theory.samples import real_array

Floats = NDArray[np.float64]
_CELLS = 2**22  # at once


def distances(one: ArrayLike, other: ArrayLike) -> Floats:
    """Returns D of every pair of rows; ties within and between samples are allowed.

    Args:
        one: samples (..., n), finite.
        other: samples (..., m); the first dimensions are broadcast against those of one.
    """
    first, second = _rows(one), _rows(other)
    n, m = first.shape[-1], second.shape[-1]
    shape = np.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    pooled = np.concatenate([np.broadcast_to(first, (*shape, n)), np.broadcast_to(second, (*shape, m))], axis=-1)
    order = np.argsort(pooled, axis=-1, kind="stable")
    ranked = np.take_along_axis(pooled, order, axis=-1)
    # n·m·(F − G), in whole numbers; it counts only behind the last of equal values
    gap = np.cumsum(np.where(order < n, m, -n), axis=-1)
    gap[..., :-1][ranked[..., 1:] == ranked[..., :-1]] = 0
    return np.asarray(np.abs(gap).max(axis=-1) / (n * m))


def asymptotic_p(distance: ArrayLike, n: int, m: int) -> Floats:
    """Returns P(D ≥ distance) for large samples of n and m numbers from one continuous law."""
    d = check_probability(distance)
    _check_sizes(n, m)
    return np.asarray(special.kolmogorov(math.sqrt(n * m / (n + m)) * d))


def exact_p(distance: ArrayLike, n: int, m: int) -> Floats:
    """Returns P(D ≥ distance) for samples of n and m numbers from one continuous law, whatever their size.

    Each value that D can have is computed once, so that a thousand distances cost no more than their different values.
    Time grows with (n + m)·min(n, m).
    """
    d = check_probability(distance)
    _check_sizes(n, m)
    steps = math.lcm(n, m)  # D is a multiple of 1/steps
    heights, places = np.unique(np.rint(d * steps).astype(np.int64), return_inverse=True)
    less, more = sorted((n, m))
    size = max(1, _CELLS // (less + 1))
    blocks = [_leaving(heights[start : start + size], less, more) for start in range(0, len(heights), size)]
    return np.concatenate([np.empty(0), *blocks])[places].reshape(d.shape)


def holm(p: ArrayLike) -> Floats:
    """Returns p corrected by Holm's method: if those up to α are rejected, any of them is so wrongly with at most α."""
    given = check_probability(p)
    if given.ndim != 1:
        raise InputError(f"p has shape {given.shape}; it must be a row of p-values, one per test")
    order = np.argsort(given, kind="stable")
    stepped = np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1))
    found = np.empty(len(given))
    found[order] = np.minimum(stepped, 1)
    return found


def _leaving(heights: NDArray[np.int64], n: int, m: int) -> Floats:
    """P(a random path from (0, 0) to (n, m) meets |i·m − j·n| ≥ height·gcd) for each height.

    A path is the pooled sample in order. Given that it passes (i, j), its last step was in i with probability i/(i+j).
    All terms are positive, so that small p are as accurate as large ones.
    """
    bound = heights[:, None] * math.gcd(n, m)
    left = np.zeros((len(heights), n + 1))
    left[:, 0] = heights <= 0
    for total in range(1, n + m + 1):
        low, high = max(0, total - m), min(n, total)
        i = np.arange(low, high + 1)
        share = i / total
        before = left[:, np.maximum(i - 1, 0)]
        here = share * before + (1 - share) * left[:, low : high + 1]
        left[:, low : high + 1] = np.where(np.abs(i * m - (total - i) * n) >= bound, 1.0, here)
    found: Floats = left[:, n]
    return found


def _rows(samples: ArrayLike) -> Floats:
    rows = real_array(samples)
    if rows.ndim < 1 or rows.shape[-1] == 0:
        raise InputError(f"samples have shape {rows.shape}; each needs at least one number")
    if not np.isfinite(rows).all():
        raise InputError(
            f"{int((~np.isfinite(rows)).sum())} numbers are NaN or infinite; leave the samples that hold them out"
        )
    return rows


def _check_sizes(n: int, m: int) -> None:
    check_whole("n", n)
    check_whole("m", m)
