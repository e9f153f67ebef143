"""The generalized Gaussian distribution: density, tails, quantiles, moments and sampling.

Density A·exp(−|β(x − location)|^c) with β = √(Γ(3/c)/Γ(1/c))/σ and A = βc/(2Γ(1/c)). Every Γ(k/c) is written as
(c/k)·Γ(1 + k/c) and kept as a logarithm: nothing overflows, and c = ∞ is the uniform law without a case of its own.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from benfourier.errors import OptionError, check_number, check_probability

Floats = NDArray[np.float64]
Numbers = float | Floats
# Below this u the incomplete gamma function P(a, u) is its first term u^a/Γ(1 + a) to the last bit.
_SMALL = 1e-20


def check_shape(shape: float) -> None:
    """Raises OptionError unless shape is a positive number or infinity."""
    if shape == math.inf:
        return
    try:
        check_number("shape", shape, above=0)
    except OptionError as error:
        raise OptionError(f"{error} (1 Laplace, 2 Gaussian, inf uniform)") from None


@dataclass(frozen=True)
class GGD:
    """A generalized Gaussian distribution."""

    shape: float  # c > 0; 1 is Laplace, 2 is Gaussian, inf is uniform on ±√3·scale
    scale: float = 1.0  # the standard deviation σ
    location: float = 0.0  # the centre of symmetry, which is mean and median

    def __post_init__(self) -> None:
        check_shape(self.shape)
        check_number("scale", self.scale, above=0)
        check_number("location", self.location)

    @property
    def log_beta(self) -> float:
        """The logarithm of β, finite for every shape and scale."""
        a = 1 / self.shape
        return 0.5 * (math.lgamma(1 + 3 * a) - math.lgamma(1 + a) - math.log(3)) - math.log(self.scale)

    @property
    def variance(self) -> float:
        """The variance, scale²."""
        return float(self.scale) ** 2

    @property
    def kurtosis(self) -> float:
        """The fourth standardized moment: 6 for Laplace, 3 for Gaussian, 9/5 for uniform."""
        return GGD(self.shape).absolute_moment(4)

    def absolute_moment(self, order: float) -> float:
        """E|X − location|^order, for any order above −1."""
        check_number("order", order, above=-1)  # the integral diverges for smaller orders
        a = 1 / self.shape
        log_ratio = math.lgamma(1 + (order + 1) * a) - math.lgamma(1 + a) - math.log(order + 1)
        return math.exp(log_ratio - order * self.log_beta)

    def log_density(self, x: ArrayLike) -> Floats:
        """The logarithm of the density at x, −inf where it vanishes."""
        y, power = _scaled_distances(np.asarray(x, np.float64) - self.location, self.shape, self.log_beta)
        if math.isinf(self.shape):
            power = np.where(y <= 1, 0.0, np.inf)
        return np.asarray(self.log_beta - math.log(2) - math.lgamma(1 + 1 / self.shape) - power)

    def density(self, x: ArrayLike) -> Floats:
        """The probability density at x."""
        return np.asarray(np.exp(self.log_density(x)))

    def cdf(self, x: ArrayLike) -> Floats:
        """P(X ≤ x), accurate relative to itself in the lower tail."""
        return cumulative(np.asarray(x, np.float64) - self.location, self.shape, self.log_beta)

    def survival(self, x: ArrayLike) -> Floats:
        """P(X > x), accurate relative to itself in the upper tail."""
        return cumulative(self.location - np.asarray(x, np.float64), self.shape, self.log_beta)

    def quantile(self, probability: ArrayLike) -> Floats:
        """The x with cdf(x) = probability."""
        p = check_probability(probability)
        tail = 2 * np.minimum(p, 1 - p)
        body, a = 1 - tail, 1 / self.shape
        y = body * math.exp(math.lgamma(1 + a))
        u = np.where(tail < 0.5, special.gammainccinv(a, tail), special.gammaincinv(a, body))
        with np.errstate(divide="ignore"):
            y = np.where(y**self.shape < _SMALL, y, u**a)
            distance = np.exp(np.log(y) - self.log_beta)
        return np.asarray(self.location + np.where(p < 0.5, -distance, distance))

    def sample(self, size: int | tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Independent draws, an array of that size."""
        a = 1 / self.shape
        # scipy.stats.gennorm draws gamma(1/c)**(1/c); for large c that gamma variate underflows to exact zeros.
        # The same law is U·G^(1/c) with G ~ Gamma(1 + 1/c) and U uniform on (0, 1]; G is of order one.
        log_uniform = np.log1p(-rng.random(size))
        log_root = special.xlogy(a, rng.standard_gamma(1 + a, size))
        sign = np.where(rng.random(size) < 0.5, -1.0, 1.0)
        return np.asarray(self.location + sign * np.exp(log_uniform + log_root - self.log_beta))


def cumulative(differences: Floats, shape: Numbers, log_beta: Numbers) -> Floats:
    """P(X − location ≤ difference) of distributions whose shapes and logarithms of β broadcast."""
    y, power = _scaled_distances(differences, shape, log_beta)
    a = 1 / shape
    tail = np.where(power < _SMALL, 1 - y / special.gamma(1 + a), special.gammaincc(a, power)) / 2
    return np.asarray(np.where(differences < 0, tail, 1 - tail))


def _scaled_distances(differences: Floats, shape: Numbers, log_beta: Numbers) -> tuple[Floats, Floats]:
    """|β·difference|, and its power shape."""
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        y = np.exp(np.log(np.abs(differences)) + log_beta)
        return y, y**shape
