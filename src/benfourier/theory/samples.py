"""Checks of samples (real, finite, float64), and their distances from the mean."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.errors import BenfourierError, InputError


def real_array(values: ArrayLike, *, raises: type[BenfourierError] = InputError) -> NDArray[np.float64]:
    """Returns values as a float64 array of the same shape; refuses complex and text."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise raises(f"samples have dtype {array.dtype}; they must be real numbers; pass for example their real parts")
    return array.astype(np.float64)


def finite_samples(values: ArrayLike, *, raises: type[BenfourierError] = InputError) -> NDArray[np.float64]:
    """Returns values flattened to float64; refuses none, NaN and infinity."""
    array = real_array(values, raises=raises).ravel()
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if array.size == 0:
        raise raises("samples are empty; at least one number is needed; check what selected them")
    if bad:
        raise raises(f"{bad} of {array.size} samples are NaN or infinite; only finite numbers are allowed; remove them")
    return array


def centred_rows(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns (rows minus their means) * 2**exponents, and the exponents (n, 1).

    The first entry is subtracted before the mean of the differences, so that a constant row becomes exact zeros.
    """
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    # Powers of two are exact; they keep sums of huge entries finite and means of tiny ones normal.
    exponents = np.where(peaks > 2.0**900, -128, np.where(peaks < 2.0**-900, 128, 0)).astype(np.int64)
    scaled = np.ldexp(rows, exponents)
    differences = scaled - scaled[:, :1]
    return differences - differences.mean(axis=1, keepdims=True), exponents
