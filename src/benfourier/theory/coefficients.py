"""Benford-Fourier coefficients a_n = E[exp(−j2πn·log10|X|)]: closed form and estimate.

For a generalized Gaussian X, with t = 2πn/ln 10 and a = 1/c,
a_n = β^(jt)·Γ(a(1 − jt))/Γ(a) = β^(jt)/(1 − jt)·Γ(1 + a(1 − jt))/Γ(1 + a).
The last form has no pole at a = 0, the uniform law. The magnitude does not depend on the scale.
"""

import math
from decimal import Decimal
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from benfourier.errors import InputError, check_choice, check_whole
from benfourier.theory.ggd import GGD, Floats, check_shape
from benfourier.theory.samples import centred_rows, finite_samples, real_array

Zeros = Literal["drop", "count", "one"]
ZEROS: tuple[Zeros, ...] = ("drop", "count", "one")

_BLOCK = 1 << 18  # numbers at once, 4 MiB of complex phasors
# log10(2) as 40 bits and the rest, so that exponent * _LOG_TWO is exact for every float64 exponent.
_LOG_TWO = round(math.log10(2) * 2**40) / 2**40
_LOG_TWO_REST = float(Decimal(2).log10() - Decimal(_LOG_TWO))


def coefficients(shape: float, orders: int = 16, *, scale: float = 1.0) -> NDArray[np.complex128]:
    """a_1..a_orders of a centred GGD, with phase, complex (orders,); the scale turns the phases only."""
    t = _frequencies(orders)
    turns = np.arange(1, t.size + 1) * math.fmod(GGD(shape, scale).log_beta / math.log(10), 1)
    return np.asarray(np.exp(2j * np.pi * turns + _log_gamma_ratio(shape, t)) / (1 - 1j * t))


def coefficient_magnitudes(shape: float, orders: int = 16) -> Floats:
    """|a_1|..|a_orders| of a centred GGD of any scale, (orders,); the shape is above 0, or inf for the uniform law."""
    check_shape(shape)
    t = _frequencies(orders)
    return np.asarray(np.exp(_log_gamma_ratio(shape, t).real) / np.sqrt(1 + t**2))


def _frequencies(orders: int) -> Floats:
    return np.arange(1, check_whole("orders", orders) + 1, dtype=np.float64) * (2 * np.pi / math.log(10))


def _log_gamma_ratio(shape: float, t: Floats) -> NDArray[np.complex128]:
    a = 1 / shape
    return np.asarray(special.loggamma(1 + a * (1 - 1j * t)) - math.lgamma(1 + a))


def estimate_coefficients(
    samples: ArrayLike, orders: int = 16, *, centre: bool = False, zeros: Zeros = "drop"
) -> NDArray[np.complex128]:
    """â_n = (1/M)·Σ exp(−j2πn·log10|x_m|) for n = 1..orders, complex (orders,); options as in `estimate_magnitudes`."""
    return np.asarray(_estimate(finite_samples(samples)[None], orders, centre, zeros)[0])


def estimate_magnitudes(samples: ArrayLike, orders: int = 16, *, centre: bool = False, zeros: Zeros = "drop") -> Floats:
    """|â_1|..|â_orders| of finite real samples in an array of any shape, (orders,); the scale does not matter.

    With `centre` the mean is subtracted first. Exact zeros are left out of the sum and of M ("drop"), left out of the
    sum only ("count"), or add 1 each ("one"), as a small power of ten in their place would.
    """
    return np.abs(estimate_coefficients(samples, orders, centre=centre, zeros=zeros))


def magnitudes_of_rows(rows: ArrayLike, orders: int = 16, *, centre: bool = False, zeros: Zeros = "drop") -> Floats:
    """|â_1|..|â_orders| of each row of real numbers (n, M), (n, orders); NaN for a row with NaN or infinity."""
    array = real_array(rows)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InputError(f"rows have shape {array.shape}; it must be (n, M) with M of at least 1; flatten each set")
    return np.abs(_estimate(array, orders, centre, zeros))


def _estimate(rows: Floats, orders: int, centre: bool, zeros: Zeros) -> NDArray[np.complex128]:
    check_whole("orders", orders)
    check_choice("zeros", zeros, ZEROS)
    step = max(1, _BLOCK // rows.shape[1])
    blocks = [_estimate_block(rows[i : i + step], orders, centre, zeros) for i in range(0, len(rows), step)]
    return np.concatenate([np.empty((0, orders), np.complex128), *blocks])


def _estimate_block(rows: Floats, orders: int, centre: bool, zeros: Zeros) -> NDArray[np.complex128]:
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    x, exponents = np.where(finite, rows, 0.0), np.zeros((len(rows), 1), np.int64)
    if centre:
        x, exponents = centred_rows(x)
    fractions, present = _fractions(x, exponents), x != 0
    weights = np.ones_like(x) if zeros == "one" else present.astype(np.float64)
    count = present.sum(axis=1, keepdims=True) if zeros == "drop" else x.shape[1]
    sums = [(weights * np.exp(-2j * np.pi * n * fractions)).sum(axis=1) for n in range(1, orders + 1)]
    return np.where(finite, np.stack(sums, axis=1) / np.maximum(count, 1), np.nan)


def _fractions(x: Floats, exponents: NDArray[np.int64]) -> Floats:
    """log10|x / 2**exponents| mod 1, to about 1e-16 whatever the size of x; 0 for x = 0."""
    mantissas, powers = np.frexp(np.where(x == 0, 1.0, np.abs(x)))
    powers = np.where(x == 0, 1, powers - exponents)
    return np.asarray((np.log10(mantissas) + powers * _LOG_TWO % 1 + powers * _LOG_TWO_REST) % 1)
