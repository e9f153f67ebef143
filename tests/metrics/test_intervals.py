import pytest
from scipy.stats import binom

from benfourier.errors import OptionError
from benfourier.metrics.intervals import clopper_pearson


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (1, 10), (7, 10), (10, 10), (8773, 10000)])
def test_at_each_end_of_the_interval_what_was_seen_has_just_the_tail_left(hits: int, trials: int) -> None:
    low, high = clopper_pearson(hits, trials)
    tail = 0.025
    assert low <= hits / trials <= high
    if hits:
        assert binom.sf(hits - 1, trials, low) == pytest.approx(tail, rel=1e-6)
    else:
        assert low == 0
    if hits < trials:
        assert binom.cdf(hits, trials, high) == pytest.approx(tail, rel=1e-6)
    else:
        assert high == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 2), "hits is 3; it must be at most the number of trials, 2"),
        ((-1, 2), "hits is -1; it must be a whole number of at least 0"),
        ((0, 0), "trials is 0; it must be a whole number of at least 1"),
    ],
)
def test_impossible_counts_are_refused(arguments: tuple[int, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        clopper_pearson(*arguments)
