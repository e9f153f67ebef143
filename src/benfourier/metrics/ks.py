"""The two-sample Kolmogorov-Smirnov test, for many pairs of samples at once, and Holm's correction.

D = sup_t |F_n(t) − G_m(t)|. The asymptotic p is Q(√(nm/(n+m))·D) with Kolmogorov's Q, as SciPy 1.3 and 1.4 had it under
mode="asymp"; later versions use the law of one sample of round(nm/(n+m)) numbers.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from benfourier.errors import InputError, check_probability, check_whole
from benfourier.metrics.scores import Floats
from benfourier.theory.samples import real_array


def distances(one: ArrayLike, other: ArrayLike) -> Floats:
    """Returns D of all pairs of samples (..., n) and (..., m), whose first dimensions are broadcast; ties may occur."""
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
    d, n, m = check_probability(distance), check_whole("n", n), check_whole("m", m)
    return np.asarray(special.kolmogorov(math.sqrt(n * m / (n + m)) * d))


def holm(p: ArrayLike) -> Floats:
    """Returns p corrected by Holm's method: rejecting all up to α is wrong anywhere with at most α."""
    raw = check_probability(p)
    if raw.ndim != 1:
        raise InputError(f"p has shape {raw.shape}; it must be a row of p-values, one per test")
    order = np.argsort(raw, kind="stable")
    # the smallest p times the number of tests, the next times one less, and never below the one before
    stepped = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    corrected = np.empty(len(raw))
    corrected[order] = np.minimum(stepped, 1)
    return corrected


def _rows(samples: ArrayLike) -> Floats:
    rows = real_array(samples)
    if rows.ndim < 1 or rows.shape[-1] == 0:
        raise InputError(f"samples have shape {rows.shape}; each needs at least one number")
    if not np.isfinite(rows).all():
        bad = int((~np.isfinite(rows)).sum())
        raise InputError(f"{bad} numbers are NaN or infinite; leave the samples that hold them out")
    return rows
