from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score, roc_auc_score, roc_curve

from benfourier.errors import InputError
from benfourier.evaluation.intervals import difference, drawings, estimate
from benfourier.evaluation.metrics import above, accuracy, aupr, auroc, tpr_at
from benfourier.evaluation.sample import Sample


def sample(good: int, bad: int, *, shift: float = 1.0, seed: int = 0, round_to: int | None = None) -> Sample:
    random = np.random.default_rng(seed)
    scores = np.concatenate([random.normal(size=good), random.normal(shift, size=bad)])
    scores = scores if round_to is None else scores.round(round_to)
    return Sample(scores, np.repeat([False, True], [good, bad]), tuple(str(n) for n in [*range(good), *range(bad)]))


@pytest.mark.parametrize(
    ("ours", "theirs"), [(auroc, roc_auc_score), (aupr, average_precision_score)], ids=["auroc", "aupr"]
)
@given(
    rows=st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.integers(0, 3)), min_size=2, max_size=40).filter(
        lambda rows: {bad for _, bad, weight in rows if weight} == {False, True}
    )
)
@settings(max_examples=60, deadline=None)
def test_areas_equal_those_of_scikit_learn_with_ties_and_weights(
    ours: Callable[..., np.ndarray], theirs: Callable[..., float], rows: list[tuple[int, bool, int]]
) -> None:
    scores, bad, weights = (np.array(column) for column in zip(*rows, strict=True))
    made = Sample(scores.astype(float), bad, tuple(map(str, range(len(rows)))))
    assert ours(made, weights[None].astype(float))[0] == pytest.approx(theirs(bad, scores, sample_weight=weights))


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("round_to", [None, 1])
def test_caught_at_a_rate_is_a_point_of_the_roc_curve(rate: float, round_to: int | None) -> None:
    made = sample(300, 200, round_to=round_to)
    alarms, caught, _ = roc_curve(made.adversarial, made.scores, drop_intermediate=False)
    assert tpr_at(rate)(made, None)[0] == pytest.approx(caught[alarms <= rate + 1e-12].max())


def test_shares_above_a_threshold_are_counted() -> None:
    made = sample(40, 60)
    assert above(0.5, adversarial=True)(made, None)[0] == pytest.approx((made.scores[40:] > 0.5).mean())
    assert above(0.5, adversarial=False)(made, None)[0] == pytest.approx((made.scores[:40] > 0.5).mean())
    assert accuracy(0.5)(made, None)[0] == pytest.approx(accuracy_score(made.adversarial, made.scores > 0.5))


def test_weights_count_rows_as_often_as_copies_would() -> None:
    made = sample(20, 30)
    weights = np.random.default_rng(1).integers(0, 4, 50)
    rows = np.repeat(np.arange(50), weights)
    copies = Sample(made.scores[rows], made.adversarial[rows], tuple(made.sources[row] for row in rows))
    for metric in (auroc, aupr, tpr_at(0.1), above(0.2, adversarial=True), accuracy(0.2)):
        assert metric(made, weights[None].astype(float))[0] == pytest.approx(metric(copies, None)[0])


def test_a_metric_without_one_of_the_kinds_is_not_a_number() -> None:
    assert np.isnan(auroc(sample(5, 0), None)[0])
    assert np.isnan(tpr_at(0.1)(sample(5, 0), None)[0])


def test_twins_are_drawn_together() -> None:
    for weights in drawings(("a", "b", "a", "c", "b"), seed=3, draws=50):
        assert np.array_equal(weights[:, 0], weights[:, 2])
        assert np.array_equal(weights[:, 1], weights[:, 4])
        assert (weights[:, [0, 1, 3]].sum(axis=1) == 3).all()


def test_all_draws_are_made_whatever_fits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(drawings(("a", "b", "c"), seed=1, draws=17)))
    monkeypatch.setattr("benfourier.evaluation.intervals.CELLS", 12)
    parts = list(drawings(("a", "b", "c"), seed=1, draws=17))
    assert len(parts) == 5
    assert np.array_equal(np.concatenate(parts), whole)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """The truth is Φ(1/√2) = 0.7602; 200 intervals of 95 % miss it more than 24 times with probability 1e-4."""
    missed = 0
    for seed in range(200):
        found = estimate(auroc, sample(80, 80, seed=seed), seed=seed, draws=200)
        missed += not found.low <= 0.76025 <= found.high
    assert missed <= 24


def test_intervals_are_wider_when_twins_are_few_sources() -> None:
    """40 rows of each of 10 sources say little more than 10 rows would."""
    effects = np.repeat(np.random.default_rng(2).normal(size=10), 40)
    bad = np.repeat([False, True], 200)
    scores = effects + bad + np.random.default_rng(3).normal(0, 0.1, 400)
    together = estimate(auroc, Sample(scores, bad, tuple(str(row // 40) for row in range(400))))
    alone = estimate(auroc, Sample(scores, bad, tuple(map(str, range(400)))))
    assert together.value == alone.value
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_a_paired_difference_of_the_same_scores_is_nothing() -> None:
    made = sample(50, 50)
    found = difference(auroc, made, made)
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_a_paired_difference_is_narrower_than_two_intervals_apart() -> None:
    one = sample(150, 150)
    other = Sample(one.scores + np.random.default_rng(5).normal(0, 0.1, 300), one.adversarial, one.sources)
    apart = difference(auroc, one, other)
    alone = estimate(auroc, one)
    assert apart.high - apart.low < 0.5 * (alone.high - alone.low)


def test_a_paired_difference_of_other_images_is_refused() -> None:
    with pytest.raises(InputError, match="the same rows in both"):
        difference(auroc, sample(5, 5), sample(5, 6))


def test_rows_that_do_not_fit_and_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="each row needs one of each"):
        Sample(np.zeros(3), np.zeros(2, bool), ("a", "b", "c"))
    with pytest.raises(InputError, match="score 1 is NaN"):
        Sample(np.array([0, np.nan]), np.zeros(2, bool), ("a", "b"))
