import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from benfourier.errors import FitError, OptionError
from benfourier.theory.fitting import SHAPE_LEAST, SHAPE_MOST, fit, moment_shape
from benfourier.theory.ggd import GGD


def deviation_of_shape(shape: float, samples: int) -> float:
    """The Cramér-Rao bound on the shape's standard deviation, scale unknown."""
    a = 1 / shape
    return math.sqrt(shape**3 / ((1 + a) * special.polygamma(1, 1 + a) - 1) / samples)


def best_likelihood(x: NDArray[np.float64], shape: float) -> float:
    """The log-likelihood of a shape at its best scale, written out plainly for moderate centred x."""
    alpha = float(shape * np.mean(np.abs(x) ** shape)) ** (1 / shape)
    return float(GGD(shape, alpha * math.exp(GGD(shape).log_beta)).log_density(x).sum())


@pytest.mark.parametrize("shape", [0.3, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0, 20.0])
def test_fit_recovers_the_shape_as_well_as_any_estimator_can(shape: float) -> None:
    x = GGD(shape, scale=3.0).sample(50_000, np.random.default_rng(11))
    result = fit(x, location=0.0)
    # Five Cramér-Rao deviations: false failure six in ten million.
    assert abs(result.ggd.shape - shape) < 5 * deviation_of_shape(shape, x.size)
    # The scale's relative deviation is at most √((kurtosis − 1)/4M), that of the sample's own; five of them.
    assert abs(result.ggd.scale / 3.0 - 1) < 5 * math.sqrt((GGD(shape).kurtosis - 1) / (4 * x.size))
    assert (result.samples, result.at_bound) == (x.size, False)


@pytest.mark.parametrize("shape", [1.0, 2.0, 8.0])
def test_fit_finds_the_location_by_the_mean(shape: float) -> None:
    x = GGD(shape, scale=3.0, location=-7.0).sample(50_000, np.random.default_rng(12))
    result = fit(x)
    assert result.ggd.location == pytest.approx(x.mean(), rel=1e-12)
    assert abs(result.ggd.shape - shape) < 5 * deviation_of_shape(shape, x.size)


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0, 8.0])
def test_moment_matching_recovers_the_shape(shape: float) -> None:
    ggd = GGD(shape)
    x = ggd.sample(50_000, np.random.default_rng(13))
    # Delta method for ln((E|x|)²/E(x²)) at unit variance, five deviations; its slope in c by a difference.
    first, third, fourth = (ggd.absolute_moment(k) for k in (1, 3, 4))
    variance = 4 * (1 / first**2 - 1) - 4 * (third / first - 1) + fourth - 1
    slope = 2 * math.log(GGD(shape + 1e-4).absolute_moment(1) / GGD(shape - 1e-4).absolute_moment(1)) / 2e-4
    assert abs(moment_shape(x) - shape) < 5 * math.sqrt(variance / x.size) / slope


def test_moment_matching_solves_its_equation() -> None:
    x = np.random.default_rng(1).laplace(size=100)
    ratio = np.mean(np.abs(x)) ** 2 / np.mean(x**2)
    assert GGD(moment_shape(x, location=0.0)).absolute_moment(1) ** 2 == pytest.approx(ratio, rel=1e-11)


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0, 6.0])
def test_fit_is_at_least_as_likely_as_scipys(shape: float) -> None:
    x = GGD(shape).sample(400, np.random.default_rng(3))
    theirs = stats.gennorm.logpdf(x, *stats.gennorm.fit(x, floc=0)).sum()
    # Rounding of 400 terms of order one.
    assert fit(x, location=0.0).log_likelihood >= theirs - 1e-10


@pytest.mark.parametrize("seed", range(8))
def test_fit_is_the_highest_point_of_a_profile_with_several_peaks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # A broad hump near 2, and a rise towards small shapes from the exact zeros.
    x = np.concatenate([rng.normal(size=30), np.zeros(seed)])
    highest = max(best_likelihood(x, shape) for shape in np.geomspace(SHAPE_LEAST, SHAPE_MOST, 1500))
    assert fit(x, location=0.0).log_likelihood >= highest - 1e-9


def test_the_likelihood_is_that_of_the_fitted_distribution() -> None:
    x = np.random.default_rng(2).laplace(3.0, 2.0, size=200)
    result = fit(x)
    assert result.log_likelihood == pytest.approx(float(result.ggd.log_density(x).sum()), rel=1e-12)


TINY = {
    "nearly one-hot": [1 - 9e-12] + [1e-12] * 9,
    "one-hot": [1.0] + [0.0] * 9,
    "flat but one": [0.1] * 9 + [0.1 + 1e-9],
    "two values": [0.0, 1.0],
    "two values often": [0.0] * 5 + [1.0] * 5,
    "ties at the mean": [1.0] + [2.0] * 8 + [3.0],
    "zeros": [0.0, 0.0, 0.0, 1.0, -1.0, 5.0],
    "fifteen decades": [10.0**-k for k in range(15)],
}


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("location", [None, 0.0])
def test_tiny_samples_are_fitted(name: str, location: float | None) -> None:
    result = fit(TINY[name], location=location)
    assert SHAPE_LEAST <= result.ggd.shape <= SHAPE_MOST
    assert SHAPE_LEAST <= result.start <= SHAPE_MOST
    assert result.at_bound == (result.ggd.shape in (SHAPE_LEAST, SHAPE_MOST))
    assert math.isfinite(result.log_likelihood)


def test_two_values_are_uniform_as_far_as_the_interval_goes() -> None:
    result = fit([0.0, 1.0])
    assert (result.ggd.shape, result.ggd.location, result.at_bound) == (SHAPE_MOST, 0.5, True)


def test_many_exact_zeros_push_the_shape_to_the_least() -> None:
    result = fit([0.0] * 8 + [1.0, -1.0])
    assert (result.ggd.shape, result.at_bound) == (SHAPE_LEAST, True)


@pytest.mark.parametrize("factor", [1e-200, 1e-30, 7.0, 1e30, 1e200, 1e307])
def test_the_scale_of_the_samples_does_not_change_the_shape(factor: float) -> None:
    x = np.array([1, 2, 4, -3, 0.5, 10, -9, 7, 0.1])
    plain, scaled = fit(x), fit(x * factor)
    # Rounding x·factor moves a deviation by at most 10 ulp of the smallest, a relative 2e-14; ln 1e200 has 5e-14.
    assert scaled.ggd.shape == pytest.approx(plain.ggd.shape, rel=1e-11)
    assert scaled.ggd.scale == pytest.approx(plain.ggd.scale * factor, rel=1e-11)
    assert scaled.ggd.location == pytest.approx(plain.ggd.location * factor, rel=1e-12)


def test_huge_samples_of_both_signs_do_not_overflow() -> None:
    x = np.array([1.5, -1.5, 0.5, -0.2, 0.9])
    for location in (None, -0.3):
        shapes = [fit(x * k, location=None if location is None else location * k).ggd.shape for k in (1.0, 1e308)]
        assert shapes[0] == pytest.approx(shapes[1], rel=1e-10)


def test_samples_of_any_array_shape_are_flattened() -> None:
    x = np.random.default_rng(4).normal(size=(4, 5, 6))
    assert fit(x) == fit(x.ravel())


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([], "empty"),
        ([3.0], "there is 1 sample"),
        ([2.0, 2.0, 2.0], "all 3 samples are 2.0"),
        ([1.0, math.nan, math.inf], "2 of 3 samples"),
        ([1j, 2j], "complex128"),
        (["a", "b"], "real numbers"),
        ([0.0, 5e-324], "outside float64"),
    ],
)
def test_samples_without_a_shape_are_refused(samples: list[float], words: str) -> None:
    with pytest.raises(FitError, match=words):
        fit(samples)


def test_a_location_that_is_not_finite_is_refused_before_the_fit() -> None:
    with pytest.raises(OptionError, match="location is nan"):
        fit([1.0, 2.0], location=math.nan)
