import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, kstest

from benfourier.errors import InputError, OptionError
from benfourier.metrics.thresholds import JointRules, Threshold, threshold_at


@pytest.mark.parametrize(
    ("count", "rate", "rank"), [(19, 0.05, 19), (20, 0.05, 20), (39, 0.05, 38), (99, 0.07, 93), (9, 0.5, 5)]
)
def test_the_threshold_is_the_order_statistic_of_the_rate(count: int, rate: float, rank: int) -> None:
    scores = np.random.default_rng(0).permutation(np.arange(1.0, count + 1))
    assert threshold_at(rate, scores).value == rank


@given(st.integers(1, 400), st.integers(1, 400))
def test_a_quotient_of_whole_numbers_is_not_rounded_to_one_image_too_many(count: int, alarms: int) -> None:
    share = min(alarms, count)
    threshold = threshold_at(share / (count + 1), np.arange(count))
    assert threshold.alarms == share - 1


@given(st.integers(2, 5000))
def test_a_rate_is_taken_from_the_number_of_images_it_needs_and_refused_below(count: int) -> None:
    rate = 1 / (count + 1)
    assert threshold_at(rate, np.arange(count)).alarms == 0
    with pytest.raises(OptionError, match=f"needs at least {count}: give more, or a rate of at least 1/{count} "):
        threshold_at(rate, np.arange(count - 1))


def test_a_rate_that_is_too_small_is_refused_with_the_number_of_images_it_needs() -> None:
    with pytest.raises(OptionError) as caught:
        threshold_at(0.01, np.arange(40.0))
    assert str(caught.value) == (
        "false_alarm_rate is 0.01 and there are 40 held-out clean images; that rate needs at least 99: give more, or a "
        "rate of at least 1/41 = 0.02439"
    )


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5, math.nan, True, "0.05", None])
def test_invalid_rates_are_refused(rate: object) -> None:
    with pytest.raises(OptionError, match="it must be a number between 0 and 1"):
        threshold_at(rate, np.arange(40.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("scores", [[], [1.0, math.nan], [[1.0, 2.0]], [1.0, math.inf]])
def test_invalid_scores_are_refused(scores: list[float]) -> None:
    with pytest.raises(InputError, match="they must be finite, one per held-out clean image"):
        threshold_at(0.5, scores)


def test_scores_equal_to_the_threshold_are_no_alarms() -> None:
    threshold = threshold_at(0.2, [1.0] * 30 + [2.0] * 10)
    assert (threshold.value, threshold.alarms) == (2.0, 0)


def test_false_alarms_of_new_images_are_as_rare_as_asked() -> None:
    draws = np.random.default_rng(0)
    # the true rate of one threshold is Beta(5, 95): deviation 0.0217, so 5 deviations of 4000 means are 0.0017,
    # exceeded with a probability below 1e-6
    true = [1 - threshold_at(0.05, draws.random(99)).value for _ in range(4000)]
    assert abs(np.mean(true) - 0.05) < 0.0017


def test_the_interval_holds_the_true_rate_as_often_as_it_says() -> None:
    draws = np.random.default_rng(1)
    thresholds = [threshold_at(0.05, draws.random(60)) for _ in range(2000)]
    covered = [threshold.interval[0] <= 1 - threshold.value <= threshold.interval[1] for threshold in thresholds]
    # 2000 tosses at 95 %: deviation 0.0049; 5 of them are exceeded with a probability below 1e-6
    assert np.mean(covered) > 0.95 - 0.0245


def test_a_threshold_prints_its_interval() -> None:
    threshold = Threshold(1.5, 0.05, 100, 4, (0.011, 0.0993))
    assert str(threshold) == (
        "1.5 for a false-alarm rate of 0.05: 4 of 100 held-out clean images are rejected, 1.10% to 9.93% at 95%"
    )


def full_conformal(held_out: np.ndarray, new: np.ndarray) -> float:
    """The p-value by its definition: x is one of n + 1 images, and each has its best place under any rule."""
    joined = np.concatenate([held_out, new[:, None]], axis=1)  # (rules, n + 1)
    best = np.array([[(row >= one).sum() - 1 for one in row] for row in joined]).min(0)
    return float((best <= best[-1]).mean())


@given(st.integers(1, 3), st.integers(1, 12), st.integers(0, 2**32 - 1), st.booleans())
def test_joint_p_values_are_never_smaller_than_by_definition(rules: int, count: int, seed: int, ties: bool) -> None:
    draws = np.random.default_rng(seed)
    held_out, new = draws.normal(size=(rules, count)), draws.normal(size=(rules, 1))
    if ties:
        held_out, new = np.round(held_out), np.round(new)
    (p,) = JointRules(tuple(held_out)).p_values(tuple(new))
    exact = full_conformal(held_out, new[:, 0])
    assert p >= exact - 1e-12
    if rules == 1:
        assert p == pytest.approx(exact)


@given(st.integers(40, 90), st.integers(0, 2**32 - 1), st.booleans())
def test_joint_thresholds_reject_where_the_p_value_is_at_most_the_rate(count: int, seed: int, ties: bool) -> None:
    draws = np.random.default_rng(seed)
    held_out, new = draws.normal(size=(2, count)), 1.5 * draws.normal(size=(2, 50))
    if ties:
        held_out, new = np.round(held_out, 1), np.round(new, 1)
    rules = JointRules(tuple(held_out))
    one, two = rules.thresholds(0.1)
    assert ((rules.p_values(tuple(new)) <= 0.1) == ((new[0] > one) | (new[1] > two))).all()


def test_joint_p_values_of_new_images_are_uniform() -> None:
    draws = np.random.default_rng(0)
    values = []
    for _ in range(400):
        scores = draws.normal(size=(2, 201))
        scores[1] = 0.5 * scores[0] + scores[1]
        values.append(float(JointRules(tuple(scores[:, :200])).p_values(tuple(scores[:, 200:]))[0]))
    # one image for each draw of the others, so the 400 are independent; fails by chance with probability 0.001
    assert kstest(values, "uniform").pvalue > 0.001
    assert np.mean(np.array(values) <= 0.1) <= binom.ppf(0.999, 400, 0.1) / 400
