"""How far an estimate â_n from M independent samples lies from a_n: the law of r = |â_n − a_n|.

`RayleighLaw` is Theorem 1 of the paper: variance 1/M, a round cloud. `ExactLaw` has the same methods and keeps the true
second moments, E|â − a|² = (1 − |a_n|²)/M and E(â − a)² = (a_2n − a_n²)/M, so its cloud is an ellipse.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from benfourier.errors import check_probability, check_whole
from benfourier.theory.coefficients import coefficients
from benfourier.theory.ggd import Floats, check_shape

# The trapezoid rule over one period of 1/q, π, errs by about ((√λ1 − √λ2)/(√λ1 + √λ2))^N on N angles. The longest
# ellipse is that of the uniform law at n = 1, with 0.09^N.
_ANGLES = np.arange(32) * (np.pi / 32)


@dataclass(frozen=True)
class RayleighLaw:
    """The paper's law of |â_n − a_n|: density 2Mr·exp(−Mr²), whatever the shape and the order."""

    samples: int  # M, how many independent samples the estimate averages

    def __post_init__(self) -> None:
        check_whole("samples", self.samples)

    @property
    def mean(self) -> float:
        """½√(π/M)."""
        return 0.5 * math.sqrt(math.pi / self.samples)

    @property
    def variance(self) -> float:
        """(4 − π)/(4M)."""
        return (4 - math.pi) / (4 * self.samples)

    def density(self, r: ArrayLike) -> Floats:
        """2Mr·exp(−Mr²), 0 below 0."""
        r = np.maximum(np.asarray(r, dtype=np.float64), 0)
        return np.asarray(2 * self.samples * r * np.exp(-self.samples * r**2))

    def cdf(self, r: ArrayLike) -> Floats:
        """1 − exp(−Mr²)."""
        return np.asarray(-np.expm1(-self.samples * np.maximum(np.asarray(r, dtype=np.float64), 0) ** 2))

    def quantile(self, probability: ArrayLike) -> Floats:
        """√(−ln(1 − probability)/M)."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.sqrt(-np.log1p(-check_probability(probability)) / self.samples))


@dataclass(frozen=True)
class ExactLaw:
    """The law of |â_n − a_n| with its true second moments, a Hoyt (Nakagami-q) law.

    The second moments hold for every M; that the cloud is Gaussian is the central limit theorem, for large M.
    """

    shape: float  # c of the sampled GGD, or inf
    order: int  # n
    samples: int  # M

    def __post_init__(self) -> None:
        check_shape(self.shape)
        check_whole("order", self.order)
        check_whole("samples", self.samples)

    @cached_property
    def axes(self) -> tuple[float, float]:
        """The variances λ1 ≥ λ2 along the axes of the ellipse."""
        a = coefficients(self.shape, 2 * self.order)
        first, second = a[self.order - 1], a[-1]
        power, pseudo = 1 - abs(first) ** 2, abs(second - first**2)
        return float(power + pseudo) / (2 * self.samples), float(power - pseudo) / (2 * self.samples)

    @property
    def mean(self) -> float:
        """√(2λ1/π)·E(1 − λ2/λ1), E the complete elliptic integral."""
        long, short = self.axes
        return math.sqrt(2 * long / math.pi) * float(special.ellipe(1 - short / long))

    @property
    def variance(self) -> float:
        """λ1 + λ2 − mean², where λ1 + λ2 = (1 − |a_n|²)/M."""
        return sum(self.axes) - self.mean**2

    def density(self, r: ArrayLike) -> Floats:
        """r/√(λ1λ2)·exp(−r²/2λ1)·I0e(r²(1/λ2 − 1/λ1)/4), 0 below 0."""
        r = np.maximum(np.asarray(r, dtype=np.float64), 0)
        long, short = self.axes
        bend = special.i0e(r**2 * (1 / short - 1 / long) / 4)
        return np.asarray(r / math.sqrt(long * short) * np.exp(-(r**2) / (2 * long)) * bend)

    def cdf(self, r: ArrayLike) -> Floats:
        """The mean over angles φ of (1 − exp(−r²q/2))/(q√(λ1λ2)), q = cos²φ/λ1 + sin²φ/λ2."""
        r = np.maximum(np.asarray(r, dtype=np.float64), 0)[..., None]
        long, short = self.axes
        q = np.cos(_ANGLES) ** 2 / long + np.sin(_ANGLES) ** 2 / short
        mean = (-np.expm1(-(r**2) * q / 2) / q).mean(axis=-1)
        return np.asarray(np.minimum(mean / math.sqrt(long * short), 1))

    def quantile(self, probability: ArrayLike) -> Floats:
        """The r with cdf(r) = probability, by bisection between the two circles."""
        p = check_probability(probability)
        with np.errstate(divide="ignore"):
            high, low = (np.sqrt(-2 * axis * np.log1p(-p)) for axis in self.axes)
        for _ in range(52):
            middle = (low + high) / 2
            below = self.cdf(middle) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray((low + high) / 2)


def noise_floor(samples: int) -> float:
    """½√(π/M), the mean of |â_n| for M independent samples where a_n is 0."""
    return RayleighLaw(samples).mean
