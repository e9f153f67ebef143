import numpy as np
import pytest
from scipy import stats

from benfourier.errors import InputError, OptionError
from benfourier.metrics.ks import asymptotic_p, distances, holm

SIZES = [(10, 500), (7, 9), (8, 8), (30, 41), (1, 5), (100, 3)]


def pairs(n: int, m: int, *, tied: bool) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(n * m)
    one, other = random.normal(size=(6, n)), random.normal(0.4, 1.3, size=(6, m))
    return (one.round(0), other.round(0)) if tied else (one, other)


@pytest.mark.parametrize("tied", [False, True], ids=["different", "tied"])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_distances_are_those_of_scipy(n: int, m: int, tied: bool) -> None:
    one, other = pairs(n, m, tied=tied)
    expected = [stats.ks_2samp(a, b, method="asymp").statistic for a, b in zip(one, other, strict=True)]
    assert np.allclose(distances(one, other), expected, rtol=0, atol=1e-15)


def test_one_sample_is_compared_with_many() -> None:
    one, others = np.arange(5.0), np.random.default_rng(0).normal(2, 1, size=(2, 3, 20))
    statistics = distances(one, others)
    assert statistics.shape == (2, 3)
    assert statistics[1, 2] == stats.ks_2samp(one, others[1, 2]).statistic


def test_samples_that_are_the_same_have_no_distance_and_p_one() -> None:
    one = np.array([1.0, 1.0, 2.0, 5.0])
    assert distances(one, one) == 0
    assert distances(one, np.repeat(one, 3)) == 0
    assert asymptotic_p(0.0, 4, 12) == 1


def test_the_asymptotic_p_is_that_of_the_kolmogorov_distribution() -> None:
    d = np.linspace(0, 1, 11)
    assert np.allclose(asymptotic_p(d, 10, 500), stats.kstwobign.sf(np.sqrt(5000 / 510) * d), rtol=1e-12)


def test_holm_multiplies_the_smallest_by_the_number_of_tests_and_never_falls() -> None:
    corrected = holm([0.01, 0.04, 0.03, 0.005])
    assert np.allclose(corrected, [0.03, 0.06, 0.06, 0.02])
    assert np.allclose(holm([0.9, 0.8]), [1, 1])
    assert holm([]).shape == (0,)


def test_holm_rejects_a_true_hypothesis_in_one_family_of_twenty() -> None:
    """2000 families of 16: the share with a false rejection stays under 0.067 up to a false failure of 1e-3."""
    families = np.random.default_rng(2).random((2000, 16))
    assert np.mean([(holm(family) <= 0.05).any() for family in families]) < 0.067


def test_samples_that_are_empty_or_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="at least one number"):
        distances([], [1.0])
    with pytest.raises(InputError, match="1 numbers are NaN or infinite"):
        distances([1.0], [np.nan])
    with pytest.raises(OptionError, match="between 0 and 1"):
        asymptotic_p(1.5, 3, 4)
    with pytest.raises(OptionError, match="m is 0"):
        asymptotic_p(0.5, 3, 0)
    with pytest.raises(InputError, match="a row of p-values"):
        holm([[0.1]])
