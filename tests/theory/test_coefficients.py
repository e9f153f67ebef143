import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from benfourier.errors import InputError, OptionError
from benfourier.theory.coefficients import (
    Zeros,
    coefficient_magnitudes,
    coefficients,
    estimate_coefficients,
    estimate_magnitudes,
    magnitudes_of_rows,
)
from benfourier.theory.error_law import ExactLaw
from benfourier.theory.ggd import GGD

SHAPES = [0.3, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0, 20.0]
N = np.arange(1, 17)
T = 2 * np.pi * N / math.log(10)
# log10|x| mod 1 and the phase built from it are good to a few ulp, times 2π·16 at the highest order.
PHASE = 2 * np.pi * 16 * 8 * np.finfo(np.float64).eps
steady = settings(max_examples=60, derandomize=True, deadline=None, database=None)


def assert_close(ours: NDArray[np.complex128], true: NDArray[np.complex128]) -> None:
    """Within 1e-10, and within 1e-8 of the value where that is above 1e-6."""
    error = np.abs(ours - true)
    assert error.max() < 1e-10
    large = np.abs(true) > 1e-6
    assert np.all(error[large] < 1e-8 * np.abs(true[large]))


def by_quadrature(ggd: GGD) -> NDArray[np.complex128]:
    """E[exp(−jt·ln|X|)] by the trapezoid rule over s = ln|x|, which converges exponentially."""
    s = np.linspace(-40, math.log(750) / ggd.shape, 40_001) - ggd.log_beta
    mass = 2 * np.exp(ggd.log_density(np.exp(s)) + s) * (s[1] - s[0])
    return np.asarray(np.exp(-1j * np.multiply.outer(T, s)) @ mass)


def by_mpmath(shape: float, n: int) -> complex:
    """E[exp(−jt·ln|X|)] at unit scale by adaptive quadrature in 30 digits."""
    with mpmath.workdps(30):
        a, t = 1 / mpmath.mpf(shape), 2 * mpmath.pi * n / mpmath.log(10)
        log_beta = mpmath.log(mpmath.gamma(3 * a) / mpmath.gamma(a)) / 2
        edge = mpmath.log(80) * a

        def mass(s: mpmath.mpf) -> mpmath.mpc:
            return mpmath.exp(s - mpmath.exp(shape * s) - 1j * t * (s - log_beta))

        cuts = [*range(-50, 0, 2), *mpmath.linspace(0, edge, 10)]
        return complex(mpmath.quad(mass, cuts) / mpmath.gamma(1 + a))


@pytest.mark.parametrize(
    ("shape", "value"),
    [(1, 0.05696), (2, math.cosh(math.pi**2 / math.log(10)) ** -0.5), (8, 0.3181), (math.inf, 0.3441)],
)
def test_first_magnitudes_have_their_known_values(shape: float, value: float) -> None:
    assert coefficient_magnitudes(shape, 1)[0] == pytest.approx(value, abs=5e-5)


def test_named_laws_have_their_closed_forms() -> None:
    # |ln Γ| stays below 100, so it is good to 100 ulp.
    np.testing.assert_allclose(coefficient_magnitudes(1), np.sqrt(np.pi * T / np.sinh(np.pi * T)), rtol=1e-13)
    np.testing.assert_allclose(coefficient_magnitudes(2), np.cosh(np.pi * T / 2) ** -0.5, rtol=1e-13)
    np.testing.assert_allclose(coefficient_magnitudes(math.inf), 1 / np.sqrt(1 + T**2), rtol=1e-15)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 37.0])
def test_the_closed_form_agrees_with_quadrature(shape: float, scale: float) -> None:
    assert_close(coefficients(shape, scale=scale), by_quadrature(GGD(shape, scale)))


@pytest.mark.parametrize(("shape", "n"), [(0.5, 1), (1.0, 2), (2.0, 1), (2.0, 4), (8.0, 3), (20.0, 16)])
def test_the_closed_form_agrees_with_quadrature_in_many_digits(shape: float, n: int) -> None:
    assert_close(coefficients(shape)[n - 1 : n], np.array([by_mpmath(shape, n)]))


def test_the_uniform_law_has_its_exact_complex_value() -> None:
    # E|X|^(−jt) over (0, B) is B^(−jt)/(1 − jt), B = √3·scale.
    true = (math.sqrt(3) * 2.0) ** (-1j * T) / (1 - 1j * T)
    np.testing.assert_allclose(coefficients(math.inf, scale=2.0), true, rtol=PHASE)
    # From c = 1e7 to infinity the coefficient moves by about π²/6·|t|²/c².
    np.testing.assert_allclose(coefficients(1e7, scale=2.0), true, rtol=1e-10)


@pytest.mark.parametrize("shape", [*SHAPES, 200.0, math.inf])
def test_magnitudes_are_those_of_the_complex_coefficients_at_any_scale(shape: float) -> None:
    for scale in (1e-200, 1.0, 1e200):
        np.testing.assert_allclose(np.abs(coefficients(shape, scale=scale)), coefficient_magnitudes(shape), rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_closed_form_agrees_with_the_infinite_product(shape: float) -> None:
    # ln|a_n| = −½·Σ f(ck + 1) over k ≥ 0, f(u) = ln(1 + t²/u²); the tail is an integral by the midpoint rule.
    count = 20_000
    u = shape * np.arange(count)[:, None] + 1
    start = shape * (count - 0.5) + 1
    tail = (2 * T * np.arctan(T / start) - start * np.log1p((T / start) ** 2)) / shape
    product = np.exp(-0.5 * (np.log1p((T / u) ** 2).sum(axis=0) + tail))
    # The midpoint rule errs by about c·|f′(start)|/24 < 2e-8 for the least shape, and ln|a_n| by half of that.
    np.testing.assert_allclose(coefficient_magnitudes(shape), product, rtol=1e-8)


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0, 8.0, math.inf])
def test_estimates_from_simulated_samples_approach_the_theory(shape: float) -> None:
    samples = GGD(shape, scale=3.0).sample(40_000, np.random.default_rng(21))
    error = np.abs(estimate_coefficients(samples) - coefficients(shape, scale=3.0))
    # False failure one in a million for each order.
    limits = [ExactLaw(shape, int(n), samples.size).quantile(1 - 1e-6) for n in N]
    assert np.all(error < limits)


def test_the_estimate_is_the_mean_phasor() -> None:
    x = np.array([[0.03, -4.0], [17.0, 2.5]])
    plain = np.array([np.mean(np.exp(-2j * np.pi * n * np.log10(np.abs(x)))) for n in N])
    np.testing.assert_allclose(estimate_coefficients(x), plain, atol=PHASE)
    np.testing.assert_allclose(estimate_magnitudes(x), np.abs(plain), atol=PHASE)


def test_powers_of_ten_are_in_phase() -> None:
    np.testing.assert_allclose(estimate_coefficients([1e-300, -1e-20, 1.0, 1000.0, 1e300]), 1, atol=PHASE)


@given(st.lists(st.floats(1e-3, 1e3) | st.floats(-1e3, -1e-3), min_size=1, max_size=40), st.floats(1e-290, 1e290))
@steady
def test_scaling_the_samples_leaves_the_magnitudes(values: list[float], factor: float) -> None:
    x = np.array(values)
    np.testing.assert_allclose(estimate_magnitudes(x * factor), estimate_magnitudes(x), atol=1e-12)


@given(st.lists(st.integers(-(2**30), 2**30), min_size=1, max_size=40), st.integers(-(2**40), 2**40))
@steady
def test_shifting_the_samples_leaves_the_centred_magnitudes(values: list[int], shift: int) -> None:
    x = np.array(values, dtype=np.float64)
    # Whole numbers this small shift without rounding, so nothing may change.
    np.testing.assert_array_equal(estimate_magnitudes(x + shift, centre=True), estimate_magnitudes(x, centre=True))


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=40), st.integers(-900, 900))
@steady
def test_centred_estimates_keep_magnitude_and_phase_at_extreme_scales(values: list[int], power: int) -> None:
    x = np.ldexp(np.array(values, dtype=np.float64), power)
    turned = estimate_coefficients(np.array(values), centre=True) * np.exp(-2j * np.pi * N * (power * math.log10(2)))
    # The turn's own argument, power·log10(2) ≤ 271, is good to 3e-14 only; 2π·16 times that is 3e-12.
    np.testing.assert_allclose(estimate_coefficients(x, centre=True), turned, atol=1e-11)


def test_sums_of_huge_samples_do_not_overflow() -> None:
    x = np.array([1.5, -1.2, 0.7, 1.1])
    np.testing.assert_allclose(
        estimate_magnitudes(x * 1e308, centre=True), estimate_magnitudes(x, centre=True), atol=1e-12
    )


@pytest.mark.parametrize(("zeros", "factor", "added"), [("drop", 1.0, 0.0), ("count", 0.4, 0.0), ("one", 0.4, 0.6)])
def test_exact_zeros_follow_their_policy(zeros: Zeros, factor: float, added: float) -> None:
    present = estimate_coefficients([2.0, -5.0])
    mixed = estimate_coefficients([0.0, 2.0, 0.0, -5.0, -0.0], zeros=zeros)
    np.testing.assert_allclose(mixed, factor * present + added, atol=PHASE)


@pytest.mark.parametrize("value", [0.1, -3.7e205, 5e-324])
def test_constant_samples_are_all_zero_after_centring(value: float) -> None:
    x = np.full(1000, value)
    np.testing.assert_array_equal(estimate_magnitudes(x, centre=True), 0)
    np.testing.assert_array_equal(estimate_magnitudes(x, centre=True, zeros="count"), 0)
    np.testing.assert_array_equal(estimate_magnitudes(x, centre=True, zeros="one"), 1)


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("zeros", ["drop", "count", "one"])
def test_rows_are_estimated_as_if_alone(centre: bool, zeros: Zeros) -> None:
    rows = np.random.default_rng(8).normal(size=(5, 100_000)).astype(np.float32)
    rows[1, ::3] = 0
    rows[2] = 0
    together = magnitudes_of_rows(rows, 3, centre=centre, zeros=zeros)
    alone = [estimate_magnitudes(row, 3, centre=centre, zeros=zeros) for row in rows]
    # One code path, but sums of another block shape may round apart.
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-13)


def test_a_row_with_nan_or_infinity_is_nan_and_does_not_change_the_others() -> None:
    rows = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, -np.inf], [2.0, 5.0]])
    result = magnitudes_of_rows(rows, 4, centre=True)
    assert np.isnan(result[1:3]).all()
    np.testing.assert_array_equal(result[[0, 3]], magnitudes_of_rows(rows[[0, 3]], 4, centre=True))


def test_no_rows_give_no_magnitudes() -> None:
    assert magnitudes_of_rows(np.empty((0, 7)), 4).shape == (0, 4)


@pytest.mark.parametrize("rows", [np.ones(3), np.ones((2, 0)), np.ones((2, 2, 2)), np.ones((1, 2), complex)])
def test_rows_that_are_not_a_real_matrix_are_refused(rows: NDArray[np.float64]) -> None:
    with pytest.raises(InputError):
        magnitudes_of_rows(rows)


@pytest.mark.parametrize(
    ("samples", "complaint"),
    [([], "empty"), ([1.0, math.nan, -math.inf], "2 of 3 samples"), ([1 + 1j], "complex128"), (["1"], "real numbers")],
)
def test_samples_that_have_no_estimate_are_refused(samples: list[float], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        estimate_magnitudes(samples)


@pytest.mark.parametrize("orders", [0, -1, 2.0, True])
def test_orders_that_are_not_a_positive_whole_number_are_refused(orders: int) -> None:
    for call in (coefficients, coefficient_magnitudes):
        with pytest.raises(OptionError, match="orders is"):
            call(2.0, orders)
    with pytest.raises(OptionError, match="orders is"):
        estimate_magnitudes([1.0], orders)


@pytest.mark.parametrize("shape", [0.0, -2.0, math.nan])
def test_a_shape_that_is_not_positive_is_refused_everywhere(shape: float) -> None:
    for call in (coefficients, coefficient_magnitudes):
        with pytest.raises(OptionError, match="shape is"):
            call(shape)


def test_an_unknown_policy_for_zeros_is_refused_with_a_hint() -> None:
    with pytest.raises(OptionError, match="did you mean 'drop'"):
        estimate_magnitudes([1.0], zeros="drp")  # type: ignore[arg-type]
