import numpy as np
import pytest
from scipy import stats

from benfourier.errors import InputError, OptionError
from benfourier.evaluation.studies.ks import FitTests, fit_tests
from benfourier.theory import GGD, fit_ggd


def against_fits(
    rows: np.ndarray, *, draws: int = 50, bootstrap: int = 0, samples: int = 500, seed: int = 0
) -> FitTests:
    names = [f"image-{row}" for row in range(len(rows))]
    return fit_tests(rows, names, seed=seed, draws=draws, bootstrap=bootstrap, samples=samples)


def drawn(shape: float, rows: int) -> np.ndarray:
    return GGD(shape, 0.2, 0.1).sample((rows, 10), np.random.default_rng(3))


def test_drawn_counts_are_as_good_as_drawn_samples() -> None:
    """Means of 2000 quick and 400 exact tests differ by less than four standard errors."""
    row = np.random.default_rng(1).dirichlet(np.full(10, 0.3))
    quick = against_fits(row[None], draws=2000)
    ggd, random = fit_ggd(row).ggd(), np.random.default_rng(2)
    exact = [stats.ks_2samp(row, ggd.sample(500, random), method="exact") for _ in range(400)]
    d = np.array([result.statistic for result in exact])
    assert quick.distance[0] == pytest.approx(d.mean(), abs=4 * d.std() / np.sqrt(400))
    later = [stats.kstwobign.sf(np.sqrt(5000 / 510) * distance) for distance in d]
    assert quick.p[0] == pytest.approx(np.mean(later), abs=4 * np.std(later) / np.sqrt(400))


def test_the_plain_p_of_true_samples_is_not_uniform() -> None:
    """The distribution was fitted to the numbers that it is compared with, so that p comes out too large."""
    assert stats.kstest(against_fits(drawn(1.5, 400)).p, "uniform").statistic > 0.3


@pytest.mark.parametrize("shape", [0.05, 0.5, 2.0])
def test_the_p_of_any_shape_is_never_too_small(shape: float) -> None:
    """300 rows: more than 10 % below 0.05 with a probability of 1e-4 if 5 % are expected."""
    result = against_fits(drawn(shape, 300), bootstrap=1000)
    assert result.any_shape is not None
    assert (result.any_shape < 0.05).mean() < 0.1


def test_one_confident_class_among_ten_is_hardly_a_sample_of_any_shape() -> None:
    """D to the fit is 0.62, which even the smallest shape hardly ever reaches; the second row is like many shapes."""
    confident = np.append(np.random.default_rng(0).random((1, 9)) * 1e-6, [[1.0]], axis=1)
    result = against_fits(np.concatenate([confident, drawn(2.0, 1)]), bootstrap=1000)
    assert result.any_shape is not None
    assert result.any_shape[0] < 0.1 < 0.5 < result.any_shape[1]


def test_numbers_of_another_law_are_rejected() -> None:
    """Numbers of one sign, most of them small: nothing symmetric about their mean looks like that."""
    rows = np.exp(np.random.default_rng(4).normal(0, 2, size=(20, 24)))
    assert against_fits(rows).p.mean() < 0.1


def test_constant_rows_are_counted_and_left_out() -> None:
    rows = drawn(1.0, 4)
    rows[2] = 0.1
    result = against_fits(rows, bootstrap=9)
    assert result.unfitted == 1
    assert len(result.distance) == len(result.shapes) == 3
    assert np.isfinite(result.distance).all()


def test_draws_belong_to_the_image_whatever_its_place() -> None:
    rows = drawn(1.0, 5)
    names = list("abcde")
    options = {"seed": 7, "draws": 20, "bootstrap": 19, "samples": 50}
    forth, back = fit_tests(rows, names, **options), fit_tests(rows[::-1], names[::-1], **options)
    assert np.array_equal(forth.distance, back.distance[::-1])
    assert forth.any_shape is not None
    assert back.any_shape is not None
    assert np.array_equal(forth.any_shape, back.any_shape[::-1])
    other = fit_tests(rows, names, **{**options, "seed": 8})
    assert not np.array_equal(forth.distance, other.distance)


def test_without_a_bootstrap_there_is_no_such_p() -> None:
    result = against_fits(drawn(1.0, 3))
    assert result.any_shape is None


def test_bad_options_are_refused() -> None:
    with pytest.raises(OptionError, match="draws is 0"):
        against_fits(drawn(1.0, 2), draws=0)
    with pytest.raises(InputError, match="each row needs one"):
        fit_tests(drawn(1.0, 2), ["a"], seed=0, draws=1, bootstrap=0, samples=10)
