from collections.abc import Collection
from functools import cache
from typing import Any

import benfourier as bf
from benfourier.evaluation.studies.cost import Limits, cost_job
from benfourier.evaluation.studies.study import run_jobs
from benfourier.store.records import Cost
from tests.detectors.toys import toys


@cache
def detectors() -> dict[str, bf.Detector]:
    toy_data = toys()
    examples = toy_data.fitted.for_attack("bim")
    options: dict[str, Any] = {"C": 1.0, "gamma": "scale", "show_progress": False}
    return {
        "ours": bf.fit("mbf", toy_data.classifier, examples, **options),
        "baseline": bf.fit("max-softmax", toy_data.classifier, examples, show_progress=False),
        "kd-bu": bf.fit("kd-bu", toy_data.classifier, examples, **options),
    }


def study(known: Collection[str] = (), **options: Any) -> dict[str, Cost]:
    toy_data, limits = toys(), Limits(**{"batch": 16, "rounds": 5, "seconds": 5.0, **options})
    settings = {label: repr(detector.method) for label, detector in detectors().items()}
    job = cost_job(toy_data.classifier, settings, detectors().get, toy_data.tested.clean, limits)
    records = run_jobs([job], "costs", known=known, show_progress=False)
    return {record.detector: record for record in records if isinstance(record, Cost)}


def test_every_detector_is_timed_and_its_features_take_longer_than_the_network_alone() -> None:
    costs = study()
    assert list(costs) == ["ours", "baseline", "kd-bu"]
    assert [cost.method for cost in costs.values()] == ["mbf", "max-softmax", "kd-bu"]
    assert costs["ours"].needs == ("forward",)
    assert set(costs["kd-bu"].needs) == {"forward", "random"}
    for cost in costs.values():
        assert 0 < cost.forward_ms < 50
        assert 0 < cost.head_ms < 50
    assert len({cost.forward_ms for cost in costs.values()}) == 1
    assert costs["ours"].features_ms > costs["ours"].forward_ms
    assert costs["kd-bu"].features_ms > 2 * costs["kd-bu"].forward_ms  # it passes many times
    assert costs["ours"].images == len(toys().tested)


def test_detectors_that_are_too_expensive_get_fewer_images() -> None:
    assert {cost.images for cost in study(seconds=1e-6).values()} == {2}


def test_known_ones_are_not_timed_again() -> None:
    first = study(rounds=1)
    left = study(rounds=1, known={first["ours"].key, first["kd-bu"].key})
    assert list(left) == ["baseline"]
    assert left["baseline"].key == first["baseline"].key
    assert study(rounds=1, known={cost.key for cost in first.values()}) == {}
