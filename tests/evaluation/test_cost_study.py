from functools import cache
from itertools import pairwise
from typing import Any

import pytest

import benfourier as bf
from benfourier.errors import InputError, OptionError
from benfourier.evaluation.cost_study import Task, cost_study, take_turns
from benfourier.store.records import Cost
from tests.attacks.trained import unbeatable
from tests.detectors.toys import toys


@cache
def detectors() -> dict[str, bf.Detector]:
    made = toys()
    examples = made.fitted.for_attack("bim")
    options: dict[str, Any] = {"C": 1.0, "gamma": "scale", "show_progress": False}
    return {
        "ours": bf.fit("mbf", made.subject, examples, **options),
        "trivial": bf.fit("max-softmax", made.subject, examples, show_progress=False),
        "kd-bu": bf.fit("kd-bu", made.subject, examples, **options),
    }


def study(**options: Any) -> dict[str, Cost]:
    made = toys()
    given = {"batch": 16, "rounds": 5, "seconds": 5.0, "show_progress": False, **options}
    return {cost.detector: cost for cost in cost_study(made.subject, detectors(), made.tested.clean, **given)}


def test_every_detector_is_timed_and_its_numbers_take_longer_than_the_network_alone() -> None:
    found = study()
    assert list(found) == ["ours", "trivial", "kd-bu"]
    assert [cost.method for cost in found.values()] == ["mbf", "max-softmax", "kd-bu"]
    assert found["ours"].needs == ("listens",)
    assert set(found["kd-bu"].needs) == {"listens", "samples"}
    for cost in found.values():
        assert 0 < cost.forward_ms < 50
        assert 0 < cost.classifier_ms < 50
    assert len({cost.forward_ms for cost in found.values()}) == 1
    assert found["ours"].features_ms > found["ours"].forward_ms
    assert found["kd-bu"].features_ms > 2 * found["kd-bu"].forward_ms  # it passes many times
    assert found["ours"].images == len(toys().tested)


def test_detectors_that_are_too_dear_get_fewer_images() -> None:
    assert {cost.images for cost in study(seconds=1e-6).values()} == {2}


def test_rounds_differ_in_their_order_so_that_nobody_always_runs_after_the_dearest() -> None:
    called: list[str] = []
    names = ("network", "ours", "dear")
    tasks = {name: Task(lambda _, name=name: called.append(name), 1, 7) for name in names}  # type: ignore[misc]
    found = take_turns(tasks, 7, lambda: None)
    assert found.keys() == set(names)
    assert [called.count(name) for name in names] == [8, 8, 8]
    before = {earlier for earlier, later in pairwise(called) if later == "network"}
    assert before >= {"ours", "dear"}


def test_known_ones_are_not_timed_again() -> None:
    first = study(rounds=1)
    left = study(rounds=1, known={first["ours"].key, first["kd-bu"].key})
    assert list(left) == ["trivial"]
    assert left["trivial"].key == first["trivial"].key
    assert study(rounds=1, known={cost.key for cost in first.values()}) == {}


def test_detectors_of_another_subject_and_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="'ours' was fitted to another subject"):
        list(cost_study(unbeatable(), detectors(), toys().tested.clean))
    with pytest.raises(OptionError, match="seconds is 0"):
        study(seconds=0)
