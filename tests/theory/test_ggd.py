import math

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from benfourier.errors import OptionError
from benfourier.theory.ggd import GGD

SHAPES = [0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0, 20.0, 200.0]
ALL_SHAPES = [*SHAPES, math.inf]
EPS = np.finfo(np.float64).eps


def log_grid(ggd: GGD) -> tuple[NDArray[np.float64], float]:
    """Points s = ln|x| over all the mass, and their step; the trapezoid rule there converges exponentially."""
    edge = math.log(750) / ggd.shape
    s = np.linspace(-45, edge, 60_001) - ggd.log_beta
    return s, s[1] - s[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_density_integrates_to_one(shape: float) -> None:
    ggd = GGD(shape, scale=3.0)
    s, step = log_grid(ggd)
    # Rounding of |βx|^c is about c·ln|βx| ulp, weighted by |βx|^c ~ 1: well inside 1e-11. The left cut leaves e^-45.
    assert 2 * step * float((ggd.density(np.exp(s)) * np.exp(s)).sum()) == pytest.approx(1, abs=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", [-0.5, 1, 2, 3, 4])
def test_absolute_moments_agree_with_quadrature(shape: float, order: float) -> None:
    ggd = GGD(shape, scale=0.7)
    s, step = log_grid(ggd)
    mass = np.exp(s) * ggd.density(np.exp(s)) * np.exp(order * s)
    # For order -0.5 the left cut leaves e^(-45/2) = 2e-10 of the moment.
    assert ggd.absolute_moment(order) == pytest.approx(2 * step * float(mass.sum()), rel=1e-9)


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_the_scale_is_the_standard_deviation(shape: float) -> None:
    ggd = GGD(shape, scale=2.5)
    assert ggd.absolute_moment(2) == pytest.approx(ggd.variance, rel=1e-12)
    assert ggd.variance == 6.25


@pytest.mark.parametrize(("shape", "kurtosis"), [(1, 6), (2, 3), (math.inf, 9 / 5)])
def test_the_kurtosis_of_named_laws_is_known(shape: float, kurtosis: float) -> None:
    assert GGD(shape, scale=1e150).kurtosis == pytest.approx(kurtosis, rel=1e-13)


def test_named_laws_agree_with_scipy() -> None:
    x = np.linspace(-6, 6, 241)
    pairs = [
        (GGD(1, math.sqrt(2)), stats.laplace),
        (GGD(2), stats.norm),
        (GGD(math.inf), stats.uniform(-math.sqrt(3), 2 * math.sqrt(3))),
        (GGD(8, location=1.0, scale=2.0), stats.gennorm(8, loc=1.0, scale=math.exp(-GGD(8, scale=2.0).log_beta))),
    ]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours.density(x), theirs.pdf(x), rtol=1e-12)
        np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x), rtol=1e-12)
        np.testing.assert_allclose(ours.survival(x), theirs.sf(x), rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tail_is_accurate_from_the_centre_to_far_out(shape: float) -> None:
    ggd = GGD(shape)
    for y in (1e-8, 0.02, 0.5, 0.95, 1.02, 1.5, 10.0):
        x = y / math.exp(ggd.log_beta)
        with mpmath.workdps(60):
            a = 1 / mpmath.mpf(shape)
            beta = mpmath.sqrt(mpmath.gamma(3 * a) / mpmath.gamma(a))
            power = (beta * mpmath.mpf(x)) ** shape
            tail = float(mpmath.gammainc(a, power, mpmath.inf, regularized=True) / 2) if power < 700 else 0.0
        if tail:
            # ln|βx| is good to a few ulp; the power multiplies that by c and the tail by |βx|^c.
            tolerance = 16 * EPS * (4 + shape * (1 + float(power)))
            np.testing.assert_allclose([ggd.survival(x), ggd.cdf(-x)], tail, rtol=tolerance)


@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_quantile_undoes_cdf(shape: float) -> None:
    ggd = GGD(shape, scale=5.0, location=-2.0)
    p = np.concatenate([[1e-12, 1e-3], np.linspace(0.01, 0.99, 99), [1 - 1e-6]])
    # Adding the location rounds x by up to an ulp of 2 or of |x|, worth that times the density at x.
    x = ggd.quantile(p)
    tolerance = 1e-12 * p + 4 * EPS * (2 + np.abs(x)) * ggd.density(x) + 2 * EPS
    assert np.all(np.abs(ggd.cdf(x) - p) <= tolerance)


def test_the_ends_of_the_quantile_are_the_ends_of_the_support() -> None:
    np.testing.assert_array_equal(GGD(2).quantile([0, 0.5, 1]), [-np.inf, 0, np.inf])
    np.testing.assert_allclose(GGD(math.inf).quantile([0, 0.5, 1]), [-math.sqrt(3), 0, math.sqrt(3)], rtol=4 * EPS)


def test_the_density_vanishes_outside_the_support_of_the_uniform_law() -> None:
    np.testing.assert_array_equal(GGD(math.inf).log_density([-2, 2]), [-np.inf, -np.inf])
    np.testing.assert_allclose(GGD(math.inf).density([-1.7, 0, 1.7]), 1 / math.sqrt(12), rtol=4 * EPS)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("shape", ALL_SHAPES)
def test_nothing_overflows_at_extreme_scales(shape: float, scale: float) -> None:
    ggd = GGD(shape, scale)
    # ln of 1e200 is good to 5e-14.
    np.testing.assert_allclose(ggd.quantile([0.1, 0.7]) / scale, GGD(shape).quantile([0.1, 0.7]), rtol=1e-12)
    np.testing.assert_allclose(ggd.cdf(np.array([-1.2, 0, 0.4]) * scale), GGD(shape).cdf([-1.2, 0, 0.4]), rtol=1e-10)


@pytest.mark.parametrize("shape", [0.3, 1.0, 8.0, 200.0, math.inf])
def test_samples_follow_the_distribution(shape: float) -> None:
    ggd = GGD(shape, scale=2.0, location=1.0)
    samples = ggd.sample(20_000, np.random.default_rng(5))
    # False failure one in a million.
    assert stats.kstest(samples, ggd.cdf).pvalue > 1e-6


def test_samples_of_a_large_shape_hold_no_zeros() -> None:
    samples = GGD(200).sample(1_000_000, np.random.default_rng(0))
    assert np.count_nonzero(samples) == samples.size
    # A million uniforms come this near to 0 in all but e^-20 of the runs.
    assert np.abs(samples).min() < 20 * math.sqrt(3) / 1_000_000


def test_the_same_generator_gives_the_same_samples() -> None:
    first, second = (GGD(1.5).sample((3, 4), np.random.default_rng(7)) for _ in range(2))
    assert first.shape == (3, 4)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("shape", [0, -1, math.nan, "2", None, True])
def test_a_shape_that_is_not_positive_is_refused(shape: float) -> None:
    with pytest.raises(OptionError, match="shape is"):
        GGD(shape)


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf])
def test_a_scale_that_is_not_positive_and_finite_is_refused(scale: float) -> None:
    with pytest.raises(OptionError, match="scale is"):
        GGD(2, scale)


@pytest.mark.parametrize("location", [math.nan, math.inf])
def test_a_location_that_is_not_finite_is_refused(location: float) -> None:
    with pytest.raises(OptionError, match="location is"):
        GGD(2, location=location)


@pytest.mark.parametrize("probability", [-0.1, 1.1, math.nan])
def test_a_probability_outside_the_unit_interval_is_refused(probability: float) -> None:
    with pytest.raises(OptionError, match="between 0 and 1"):
        GGD(2).quantile([0.5, probability])


def test_a_moment_of_order_minus_one_is_refused() -> None:
    with pytest.raises(OptionError, match="above -1"):
        GGD(2).absolute_moment(-1)
