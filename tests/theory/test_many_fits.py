import numpy as np
import pytest

from benfourier.errors import FitError
from benfourier.theory import GGD, fit
from benfourier.theory.fitting import SHAPE_MOST
from benfourier.theory.many_fits import fit_rows


def rows() -> np.ndarray:
    """Samples of many shapes, and posteriors of confident and unsure classifiers."""
    random = np.random.default_rng(0)
    drawn = [GGD(shape, 3.0, -1.0).sample((20, 10), random) for shape in (0.3, 0.7, 1.0, 2.0, 5.0, 50.0)]
    return np.concatenate([*drawn, random.dirichlet(np.full(10, 0.1), 30), random.dirichlet(np.full(10, 2.0), 30)])


def test_every_row_gets_the_fit_that_it_gets_alone() -> None:
    many, alone = fit_rows(rows()), [fit(row) for row in rows()]
    assert np.allclose(many.shapes, [result.ggd.shape for result in alone], rtol=1e-8)
    assert np.allclose(many.locations, [result.ggd.location for result in alone], rtol=1e-12)
    assert np.allclose(many.log_likelihoods, [result.log_likelihood for result in alone], atol=1e-9)
    assert many.at_bound.tolist() == [result.at_bound for result in alone]
    assert many.ggd(3).scale == pytest.approx(alone[3].ggd.scale, rel=1e-7)


def test_the_cdf_of_each_row_is_that_of_its_distribution() -> None:
    many = fit_rows(rows())
    expected = [many.ggd(place).cdf(row) for place, row in enumerate(rows())]
    assert np.allclose(many.cdf(rows()), expected, rtol=0, atol=1e-9)


def test_constant_rows_have_no_fit_and_disturb_no_other() -> None:
    given = rows()[:3].copy()
    given[1] = 0.1
    many = fit_rows(given)
    assert many.found.tolist() == [True, False, True]
    assert np.isnan(many.cdf(given)[1]).all()
    assert many.shapes[2] == fit_rows(rows()[:3]).shapes[2]


def test_two_values_end_at_the_edge() -> None:
    assert fit_rows([[0.0, 1.0, 0.0, 1.0]]).shapes == SHAPE_MOST


def test_blocks_of_rows_give_what_all_give_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit_rows(rows())
    monkeypatch.setattr("benfourier.theory.many_fits._CELLS", 64 * 10 * 7)
    assert np.array_equal(fit_rows(rows()).shapes, whole.shapes)


def test_rows_that_cannot_be_fitted_are_refused() -> None:
    with pytest.raises(FitError, match="row 1 holds NaN"):
        fit_rows([[1.0, 2.0], [1.0, np.nan]])
    with pytest.raises(FitError, match="at least 2 numbers"):
        fit_rows([[1.0], [2.0]])
