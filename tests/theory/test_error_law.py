import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from benfourier.errors import OptionError
from benfourier.theory.coefficients import coefficient_magnitudes, coefficients
from benfourier.theory.error_law import ExactLaw, RayleighLaw, noise_floor
from benfourier.theory.ggd import GGD

ErrorLaw = RayleighLaw | ExactLaw
LAWS: list[ErrorLaw] = [RayleighLaw(10), RayleighLaw(4096), *(ExactLaw(c, 1, 100) for c in (0.3, 2.0, 8.0, math.inf))]
SIZE, REPEATS = 256, 20_000


def simulated_errors(shape: float, order: int) -> NDArray[np.float64]:
    """|â_n − a_n| of many independent sets of samples."""
    x = GGD(shape).sample((REPEATS, SIZE), np.random.default_rng(99))
    estimate = np.exp(-2j * np.pi * order * np.log10(np.abs(x))).mean(axis=1)
    return np.asarray(np.abs(estimate - coefficients(shape, order)[-1]))


def deviations_of_mean(errors: NDArray[np.float64], law: ErrorLaw) -> float:
    """How many standard deviations the simulated mean lies from the law's."""
    return float(abs(errors.mean() - law.mean) / (errors.std() / math.sqrt(errors.size)))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_density_is_the_slope_of_the_cdf(law: ErrorLaw) -> None:
    r = law.mean * np.array([0.0, 0.3, 0.7, 1.0, 1.8, 3.0])
    areas = [integrate.quad(law.density, 0, x, epsabs=1e-13, epsrel=1e-13)[0] for x in r]
    np.testing.assert_allclose(law.cdf(r), areas, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_mean_and_variance_are_those_of_the_density(law: ErrorLaw) -> None:
    # Beyond ten means less than exp(−78) of the mass is left.
    first, second = (
        integrate.quad(lambda r, k=k: r**k * law.density(r), 0, 10 * law.mean, epsabs=0, epsrel=1e-12)[0]
        for k in (1, 2)
    )
    assert law.mean == pytest.approx(first, rel=1e-10)
    assert law.variance == pytest.approx(second - first**2, rel=1e-9)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_quantile_undoes_the_cdf(law: ErrorLaw) -> None:
    p = np.array([[0.0, 1e-9, 0.01], [0.5, 0.99, 1 - 1e-9]])
    np.testing.assert_allclose(law.cdf(law.quantile(p)), p, rtol=1e-12)
    assert law.quantile(1.0) == np.inf
    assert law.cdf(np.inf) == pytest.approx(1, rel=1e-14)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_no_error_is_negative(law: ErrorLaw) -> None:
    np.testing.assert_array_equal(law.density([-1.0, 0.0]), 0)
    np.testing.assert_array_equal(law.cdf([-1.0, 0.0]), 0)


def test_the_rayleigh_law_has_the_moments_of_the_theorem() -> None:
    law = RayleighLaw(1024)
    assert law.mean == noise_floor(1024) == pytest.approx(0.0277, abs=5e-5)
    assert law.variance == pytest.approx((4 - math.pi) / 4096)
    np.testing.assert_allclose(law.cdf([0.01, 0.05]), stats.rayleigh(scale=math.sqrt(1 / 2048)).cdf([0.01, 0.05]))


def test_the_exact_law_becomes_the_rayleigh_law_where_coefficients_vanish() -> None:
    # |a_16| of the Laplace law is below 1e-28.
    exact, paper = ExactLaw(1.0, 16, 50), RayleighLaw(50)
    assert exact.mean == pytest.approx(paper.mean, rel=1e-14)
    np.testing.assert_allclose(exact.quantile([0.1, 0.9]), paper.quantile([0.1, 0.9]), rtol=1e-13)


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0, 8.0, math.inf])
def test_the_second_moment_of_the_exact_law_has_its_closed_form(shape: float) -> None:
    law = ExactLaw(shape, 2, 30)
    assert law.variance + law.mean**2 == pytest.approx((1 - coefficient_magnitudes(shape, 2)[1] ** 2) / 30, rel=1e-13)


@pytest.mark.parametrize(("shape", "order"), [(1.0, 1), (2.0, 1), (8.0, 1), (8.0, 4), (math.inf, 1)])
def test_simulated_errors_follow_the_exact_law(shape: float, order: int) -> None:
    errors, law = simulated_errors(shape, order), ExactLaw(shape, order, SIZE)
    # The central limit theorem leaves a relative bias of order 1/SIZE in the mean, a deviation or so; six are allowed.
    assert deviations_of_mean(errors, law) < 6
    # The second moment has no bias at all. Five deviations: false failure six in ten million.
    square = errors**2
    assert abs(square.mean() - law.variance - law.mean**2) < 5 * square.std() / math.sqrt(REPEATS)
    # The same bias moves the cdf by at most about 1/SIZE beyond the sampling error of a false failure in a million.
    assert stats.kstest(errors, law.cdf).statistic < stats.kstwo.isf(1e-6, REPEATS) + 1 / SIZE


def test_the_papers_law_is_off_for_low_orders_of_large_shapes() -> None:
    for shape in (8.0, math.inf):
        errors = simulated_errors(shape, 1)
        assert deviations_of_mean(errors, RayleighLaw(SIZE)) > 10
        assert RayleighLaw(SIZE).mean > 1.05 * ExactLaw(shape, 1, SIZE).mean


def test_the_papers_law_is_good_for_higher_orders() -> None:
    assert deviations_of_mean(simulated_errors(2.0, 4), RayleighLaw(SIZE)) < 6


@pytest.mark.parametrize("samples", [0, -3, 2.5])
def test_a_law_of_no_samples_is_refused(samples: int) -> None:
    for call in (lambda: RayleighLaw(samples), lambda: ExactLaw(2.0, 1, samples), lambda: noise_floor(samples)):
        with pytest.raises(OptionError, match="samples is"):
            call()


def test_an_exact_law_of_no_shape_or_order_is_refused() -> None:
    with pytest.raises(OptionError, match="shape is"):
        ExactLaw(0.0, 1, 10)
    with pytest.raises(OptionError, match="order is"):
        ExactLaw(2.0, 0, 10)


@pytest.mark.parametrize("law", [RayleighLaw(5), ExactLaw(2.0, 1, 5)], ids=str)
def test_a_quantile_outside_the_unit_interval_is_refused(law: ErrorLaw) -> None:
    with pytest.raises(OptionError, match="between 0 and 1"):
        law.quantile([0.5, 1.5])
