"""Generalized Gaussian distributions of many small samples at once: `fitting.fit` for every row of a matrix."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from benfourier.errors import FitError
from benfourier.theory.fitting import SHAPE_LEAST, SHAPE_MOST
from benfourier.theory.ggd import GGD
from benfourier.theory.samples import centred_rows, real_array

Floats = NDArray[np.float64]
_GRID = np.geomspace(SHAPE_LEAST, SHAPE_MOST, 64)
_HALVINGS = 30  # of a cell of the grid, 13 % wide: to 1e-10
_CELLS = 2**22  # powers at once
_SMALL = 1e-20  # below it the incomplete gamma function is its first term to the last bit


@dataclass(frozen=True, eq=False)
class Fits:
    """The distribution of highest likelihood of each row; NaN where a row is constant.

    Attributes:
        shapes: (R,).
        log_betas: logarithm of the rate β, (R,).
        locations: means of the rows, (R,).
        log_likelihoods: (R,).
    """

    shapes: Floats
    log_betas: Floats
    locations: Floats
    log_likelihoods: Floats

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def found(self) -> NDArray[np.bool_]:
        """Which rows have a fit."""
        return np.isfinite(self.shapes)

    @property
    def at_bound(self) -> NDArray[np.bool_]:
        """Which shapes ended on an edge of the search."""
        return np.isin(self.shapes, (SHAPE_LEAST, SHAPE_MOST))

    def ggd(self, row: int) -> GGD:
        """Returns the distribution of one row."""
        shape = float(self.shapes[row])
        return GGD(shape, float(np.exp(GGD(shape).log_beta - self.log_betas[row])), float(self.locations[row]))

    def cdf(self, x: ArrayLike) -> Floats:
        """Returns P(X ≤ x) of each row's distribution at each row of x, (R, K)."""
        away = np.asarray(x, np.float64) - self.locations[:, None]
        a = 1 / self.shapes[:, None]
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            y = np.exp(np.log(np.abs(away)) + self.log_betas[:, None])
            power = y ** self.shapes[:, None]
        tail = np.where(power < _SMALL, 1 - y / special.gamma(1 + a), special.gammaincc(a, power)) / 2
        return np.asarray(np.where(away < 0, tail, 1 - tail))


def fit_rows(rows: ArrayLike) -> Fits:
    """Returns the fit of every row of a matrix (R, K), the location its mean, the shape that of `fitting.fit`.

    The highest point of the grid is refined; `fit`, which refines every peak, differs only where two peaks are level.
    """
    x = real_array(rows, raises=FitError)
    if x.ndim != 2 or x.shape[1] < 2:
        raise FitError(f"rows have shape {x.shape}; they must be (rows, numbers) with at least 2 numbers in each")
    if not np.isfinite(x).all():
        raise FitError(f"row {int((~np.isfinite(x)).any(axis=1).argmax())} holds NaN or infinity; leave it out")
    out = np.full((4, len(x)), np.nan)
    fitted = np.flatnonzero((x != x[:, :1]).any(axis=1))
    block = max(1, _CELLS // (len(_GRID) * x.shape[1]))
    for start in range(0, len(fitted), block):
        chosen = fitted[start : start + block]
        out[:, chosen] = _fitted(x[chosen])
    return Fits(*out)


def _fitted(x: Floats) -> Floats:
    """Shapes, log β, locations and log-likelihoods of rows that are not constant, (4, R)."""
    away, exponents = centred_rows(x)
    locations = x[:, 0] - np.ldexp(away[:, 0], -exponents[:, 0])
    there = away != 0
    logs = np.log(np.abs(away), where=there, out=np.full(away.shape, -np.inf))
    top = logs.max(axis=1, keepdims=True)
    logs = np.where(there, logs - top, 0.0)
    shapes = _best_shapes(logs, there)
    log_alpha, _ = _alpha_and_slope(logs, there, shapes)
    heights = -np.log(2) - log_alpha - special.gammaln(1 + 1 / shapes) - 1 / shapes
    shift = top[:, 0] - exponents[:, 0] * np.log(2)
    return np.stack([shapes, -(log_alpha + shift), locations, x.shape[1] * (heights - shift)])


def _best_shapes(logs: Floats, there: NDArray[np.bool_]) -> Floats:
    """The highest shape of the grid of each row, moved to the root of the slope beside it."""
    powers = np.exp(logs[:, None, :] * _GRID[:, None]) * there[:, None, :]  # (R, grid, K)
    log_alpha = np.log(_GRID / logs.shape[1] * powers.sum(axis=2)) / _GRID
    peaks = np.argmax(-log_alpha - special.gammaln(1 + 1 / _GRID) - 1 / _GRID, axis=1)
    at_peak = _GRID[peaks]
    rising = _alpha_and_slope(logs, there, at_peak)[1] > 0
    beside = _GRID[np.clip(peaks + np.where(rising, 1, -1), 0, len(_GRID) - 1)]
    low, high = np.minimum(at_peak, beside), np.maximum(at_peak, beside)
    edge = low == high
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        up = _alpha_and_slope(logs, there, middle)[1] > 0
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return np.asarray(np.where(edge, at_peak, np.sqrt(low * high)))


def _alpha_and_slope(logs: Floats, there: NDArray[np.bool_], shapes: Floats) -> tuple[Floats, Floats]:
    """The ln α of highest likelihood in units of the largest entry, and the slope of the likelihood times shape²."""
    powers = np.exp(logs * shapes[:, None]) * there
    total = powers.sum(axis=1)
    mean = np.log(shapes / logs.shape[1] * total)
    slope = mean - shapes * (powers * logs).sum(axis=1) / total + special.digamma(1 + 1 / shapes)
    return mean / shapes, slope
