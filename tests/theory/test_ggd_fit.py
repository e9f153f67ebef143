import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from benfourier.errors import FitError, OptionError
from benfourier.theory.ggd import GGD
from benfourier.theory.ggd_fit import SHAPE_LEAST, SHAPE_MOST, fit_ggd, fit_rows


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
    result = fit_ggd(x, location=0.0)
    # Five Cramér-Rao deviations: false failure six in ten million.
    assert abs(result.ggd().shape - shape) < 5 * deviation_of_shape(shape, x.size)
    # The scale's relative deviation is at most √((kurtosis − 1)/4M), that of the sample's own; five of them.
    assert abs(result.ggd().scale / 3.0 - 1) < 5 * math.sqrt((GGD(shape).kurtosis - 1) / (4 * x.size))
    assert not result.at_bound[0]


@pytest.mark.parametrize("shape", [1.0, 2.0, 8.0])
def test_fit_finds_the_location_by_the_mean(shape: float) -> None:
    x = GGD(shape, scale=3.0, location=-7.0).sample(50_000, np.random.default_rng(12))
    result = fit_ggd(x)
    assert result.ggd().location == pytest.approx(x.mean(), rel=1e-12)
    assert abs(result.ggd().shape - shape) < 5 * deviation_of_shape(shape, x.size)


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0, 6.0])
def test_fit_is_at_least_as_likely_as_scipys(shape: float) -> None:
    x = GGD(shape).sample(400, np.random.default_rng(3))
    theirs = stats.gennorm.logpdf(x, *stats.gennorm.fit(x, floc=0)).sum()
    # Rounding of 400 terms of order one.
    assert fit_ggd(x, location=0.0).log_likelihoods[0] >= theirs - 1e-10


@pytest.mark.parametrize("seed", range(8))
def test_fit_is_the_highest_point_of_a_profile_with_several_peaks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # A broad hump near 2, and a rise towards small shapes from the exact zeros.
    x = np.concatenate([rng.normal(size=30), np.zeros(seed)])
    highest = max(best_likelihood(x, shape) for shape in np.geomspace(SHAPE_LEAST, SHAPE_MOST, 1500))
    assert fit_ggd(x, location=0.0).log_likelihoods[0] >= highest - 1e-9


def test_the_likelihood_is_that_of_the_fitted_distribution() -> None:
    x = np.random.default_rng(2).laplace(3.0, 2.0, size=200)
    result = fit_ggd(x)
    assert result.log_likelihoods[0] == pytest.approx(float(result.ggd().log_density(x).sum()), rel=1e-12)


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
    result = fit_ggd(TINY[name], location=location)
    assert SHAPE_LEAST <= result.ggd().shape <= SHAPE_MOST
    assert result.at_bound[0] == (result.ggd().shape in (SHAPE_LEAST, SHAPE_MOST))
    assert math.isfinite(result.log_likelihoods[0])


def test_two_values_are_uniform_as_far_as_the_interval_goes() -> None:
    result = fit_ggd([0.0, 1.0])
    assert (result.ggd().shape, result.ggd().location, result.at_bound[0]) == (SHAPE_MOST, 0.5, True)


def test_many_exact_zeros_push_the_shape_to_the_least() -> None:
    result = fit_ggd([0.0] * 8 + [1.0, -1.0])
    assert (result.ggd().shape, result.at_bound[0]) == (SHAPE_LEAST, True)


@pytest.mark.parametrize("factor", [1e-200, 1e-30, 7.0, 1e30, 1e200, 1e307])
def test_the_scale_of_the_samples_does_not_change_the_shape(factor: float) -> None:
    x = np.array([1, 2, 4, -3, 0.5, 10, -9, 7, 0.1])
    plain, scaled = fit_ggd(x), fit_ggd(x * factor)
    # Rounding x·factor moves a deviation by at most 10 ulp of the smallest, a relative 2e-14; ln 1e200 has 5e-14.
    assert scaled.ggd().shape == pytest.approx(plain.ggd().shape, rel=1e-11)
    assert scaled.ggd().scale == pytest.approx(plain.ggd().scale * factor, rel=1e-11)
    assert scaled.ggd().location == pytest.approx(plain.ggd().location * factor, rel=1e-12)


def test_huge_samples_of_both_signs_do_not_overflow() -> None:
    x = np.array([1.5, -1.5, 0.5, -0.2, 0.9])
    for location in (None, -0.3):
        shapes = [fit_ggd(x * k, location=None if location is None else location * k).ggd().shape for k in (1.0, 1e308)]
        assert shapes[0] == pytest.approx(shapes[1], rel=1e-10)


def test_samples_of_any_array_shape_are_flattened() -> None:
    x = np.random.default_rng(4).normal(size=(4, 5, 6))
    assert fit_ggd(x).ggd() == fit_ggd(x.ravel()).ggd()


@pytest.mark.parametrize(
    ("samples", "complaint"),
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
def test_samples_without_a_shape_are_refused(samples: list[float], complaint: str) -> None:
    with pytest.raises(FitError, match=complaint):
        fit_ggd(samples)


def test_a_location_that_is_not_finite_is_refused_before_the_fit() -> None:
    with pytest.raises(OptionError, match="location is nan"):
        fit_ggd([1.0, 2.0], location=math.nan)


def rows() -> np.ndarray:
    """Samples of many shapes, and posteriors of confident and unsure classifiers."""
    random = np.random.default_rng(0)
    drawn = [GGD(shape, 3.0, -1.0).sample((20, 10), random) for shape in (0.3, 0.7, 1.0, 2.0, 5.0, 50.0)]
    return np.concatenate([*drawn, random.dirichlet(np.full(10, 0.1), 30), random.dirichlet(np.full(10, 2.0), 30)])


def test_every_row_gets_the_fit_that_it_gets_alone() -> None:
    many, alone = fit_rows(rows()), [fit_ggd(row) for row in rows()]
    assert np.allclose(many.shapes, [result.ggd().shape for result in alone], rtol=1e-8)
    assert np.allclose(many.locations, [result.ggd().location for result in alone], rtol=1e-12)
    assert np.allclose(many.log_likelihoods, [result.log_likelihoods[0] for result in alone], atol=1e-9)
    assert many.at_bound.tolist() == [result.at_bound[0] for result in alone]
    assert many.ggd(3).scale == pytest.approx(alone[3].ggd().scale, rel=1e-7)


def test_the_cdf_of_each_row_is_that_of_its_distribution() -> None:
    many = fit_rows(rows())
    expected = [many.ggd(place).cdf(row) for place, row in enumerate(rows())]
    assert np.allclose(many.cdf(rows()), expected, rtol=0, atol=1e-9)


def test_constant_rows_have_no_fit_and_do_not_change_the_others() -> None:
    samples = rows()[:3].copy()
    samples[1] = 0.1
    many = fit_rows(samples)
    assert many.exists.tolist() == [True, False, True]
    assert np.isnan(many.cdf(samples)[1]).all()
    assert many.shapes[2] == fit_rows(rows()[:3]).shapes[2]


def test_rows_of_two_values_get_the_largest_shape() -> None:
    assert fit_rows([[0.0, 1.0, 0.0, 1.0]]).shapes == SHAPE_MOST


def test_rows_are_fitted_the_same_in_blocks_and_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit_rows(rows())
    monkeypatch.setattr("benfourier.theory.ggd_fit._CELLS", 10 * 7)
    assert np.array_equal(fit_rows(rows()).shapes, whole.shapes)


def test_rows_that_cannot_be_fitted_are_refused() -> None:
    with pytest.raises(FitError, match="row 1 holds NaN"):
        fit_rows([[1.0, 2.0], [1.0, np.nan]])
    with pytest.raises(FitError, match="at least 2 numbers"):
        fit_rows([[1.0], [2.0]])
