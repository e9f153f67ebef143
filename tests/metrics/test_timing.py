from functools import partial
from itertools import pairwise

from benfourier.metrics.timing import median_seconds, seconds_in_turns


def test_rounds_differ_in_their_order_so_that_no_call_always_runs_after_the_most_expensive() -> None:
    called: list[str] = []
    names = ("network", "ours", "expensive")
    seconds = median_seconds({name: partial(called.append, name) for name in names}, 7)
    assert seconds.keys() == set(names)
    assert [called.count(name) for name in names] == [8, 8, 8]
    before = {earlier for earlier, later in pairwise(called) if later == "network"}
    assert before >= {"ours", "expensive"}


def test_calls_with_fewer_rounds_have_no_round_that_is_not_counted() -> None:
    called: list[str] = []
    calls = {name: partial(called.append, name) for name in ("cheap", "expensive")}
    seconds = seconds_in_turns(calls, 5, rounds_of={"cheap": 9, "expensive": 2})
    assert (called.count("cheap"), called.count("expensive")) == (6, 2)
    assert (len(seconds["cheap"]), len(seconds["expensive"])) == (5, 2)
