"""Metrics beside scikit-learn, and the bootstrap."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score, roc_auc_score, roc_curve

from benfourier.errors import InputError
from benfourier.metrics.bootstrap import Bootstrap
from benfourier.metrics.ranking import ROC_RATES, accuracy, aupr, auroc, roc
from benfourier.metrics.scores import ScoreSample


def sample(good: int, bad: int, *, shift: float = 1.0, seed: int = 0, round_to: int | None = None) -> ScoreSample:
    random = np.random.default_rng(seed)
    scores = np.concatenate([random.normal(size=good), random.normal(shift, size=bad)])
    scores = scores if round_to is None else scores.round(round_to)
    sources = tuple(str(n) for n in [*range(good), *range(bad)])
    return ScoreSample(scores, np.repeat([False, True], [good, bad]), sources)


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
    score_sample = ScoreSample(scores.astype(float), bad, tuple(map(str, range(len(rows)))))
    assert ours(score_sample, weights[None].astype(float))[0] == pytest.approx(
        theirs(bad, scores, sample_weight=weights)
    )


@pytest.mark.parametrize("round_to", [None, 1])
def test_a_roc_curve_is_that_of_scikit_learn(round_to: int | None) -> None:
    score_sample = sample(300, 150, round_to=round_to)
    scores = score_sample.scores.reshape(3, 150)
    alarms, caught, _ = roc_curve(score_sample.adversarial, score_sample.scores, drop_intermediate=False)
    expected = [caught[alarms <= rate + 1e-12].max() for rate in ROC_RATES]
    assert roc(scores, np.zeros(150, np.intp)) == pytest.approx(expected)


def curve(folds: list[int], clean: list[float], adversarial: list[float]) -> np.ndarray[Any, Any]:
    return roc(np.array([clean, clean, adversarial]), np.array(folds, np.intp))


def test_a_roc_curve_catches_only_what_lies_above_the_threshold() -> None:
    detection_rates = curve([0] * 4, [1, 2, 3, 4], [0, 2.5, 3.5, 5])
    at = dict(zip(ROC_RATES.tolist(), detection_rates.tolist(), strict=True))
    assert (at[0.0], at[0.25], at[0.5], at[1.0]) == (0.25, 0.5, 0.75, 1.0)


def test_a_roc_curve_over_folds_is_the_mean_of_their_curves() -> None:
    one, two = ([1.0, 2.0], [3.0, 4.0]), ([10.0, 20.0], [0.0, 0.0])
    both = curve([0, 0, 1, 1], one[0] + two[0], one[1] + two[1])
    alone = [curve([0, 0], *part) for part in (one, two)]
    assert both == pytest.approx(np.mean(alone, axis=0))
    assert not np.allclose(both, curve([0] * 4, one[0] + two[0], one[1] + two[1]))


def test_ties_are_not_caught() -> None:
    assert curve([0, 0], [1, 1], [1, 1])[:-1].max() == 0


def test_accuracy_counts_both_sides_of_the_threshold() -> None:
    score_sample = sample(40, 60)
    assert accuracy(score_sample, None)[0] == pytest.approx(
        accuracy_score(score_sample.adversarial, score_sample.scores > 0.5)
    )


def test_weights_count_rows_as_often_as_copies_would() -> None:
    score_sample = sample(20, 30)
    weights = np.random.default_rng(1).integers(0, 4, 50)
    rows = np.repeat(np.arange(50), weights)
    copies = ScoreSample(
        score_sample.scores[rows], score_sample.adversarial[rows], tuple(score_sample.sources[row] for row in rows)
    )
    for metric in (auroc, aupr, accuracy):
        assert metric(score_sample, weights[None].astype(float))[0] == pytest.approx(metric(copies, None)[0])


def test_a_metric_without_one_of_the_kinds_is_not_a_number() -> None:
    assert np.isnan(auroc(sample(5, 0), None)[0])
    assert np.isnan(aupr(sample(5, 0), None)[0])


def test_twins_are_drawn_together() -> None:
    for weights in Bootstrap(3, 50).resamples(("a", "b", "a", "c", "b")):
        assert np.array_equal(weights[:, 0], weights[:, 2])
        assert np.array_equal(weights[:, 1], weights[:, 4])
        assert (weights[:, [0, 1, 3]].sum(axis=1) == 3).all()


def test_all_draws_are_made_whatever_fits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(Bootstrap(1, 17).resamples(("a", "b", "c"))))
    monkeypatch.setattr("benfourier.metrics.bootstrap.MAX_WEIGHTS", 12)
    parts = list(Bootstrap(1, 17).resamples(("a", "b", "c")))
    assert len(parts) == 5
    assert np.array_equal(np.concatenate(parts), whole)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """The truth is Φ(1/√2) = 0.7602; 200 intervals of 95 % miss it more than 24 times with probability 1e-4."""
    missed = 0
    for seed in range(200):
        estimate = Bootstrap(seed, 200).estimate(auroc, sample(80, 80, seed=seed))
        missed += not estimate.low <= 0.76025 <= estimate.high
    assert missed <= 24


def test_intervals_are_wider_when_twins_are_few_sources() -> None:
    """40 rows of each of 10 sources say little more than 10 rows would."""
    effects = np.repeat(np.random.default_rng(2).normal(size=10), 40)
    bad = np.repeat([False, True], 200)
    scores = effects + bad + np.random.default_rng(3).normal(0, 0.1, 400)
    together = Bootstrap().estimate(auroc, ScoreSample(scores, bad, tuple(str(row // 40) for row in range(400))))
    alone = Bootstrap().estimate(auroc, ScoreSample(scores, bad, tuple(map(str, range(400)))))
    assert together.value == alone.value
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_a_paired_difference_of_the_same_scores_is_nothing() -> None:
    score_sample = sample(50, 50)
    difference = Bootstrap().difference(auroc, score_sample, score_sample)
    assert (difference.value, difference.low, difference.high) == (0, 0, 0)


def test_a_paired_difference_is_narrower_than_two_intervals_apart() -> None:
    one = sample(150, 150)
    other = ScoreSample(one.scores + np.random.default_rng(5).normal(0, 0.1, 300), one.adversarial, one.sources)
    apart = Bootstrap().difference(auroc, one, other)
    alone = Bootstrap().estimate(auroc, one)
    assert apart.high - apart.low < 0.5 * (alone.high - alone.low)


def test_a_paired_difference_of_other_images_is_refused() -> None:
    with pytest.raises(InputError, match="the same rows in both"):
        Bootstrap().difference(auroc, sample(5, 5), sample(5, 6))


def test_rows_that_do_not_fit_and_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="each row needs one of each"):
        ScoreSample(np.zeros(3), np.zeros(2, bool), ("a", "b", "c"))
    with pytest.raises(InputError, match="score 1 is NaN"):
        ScoreSample(np.array([0, np.nan]), np.zeros(2, bool), ("a", "b"))
