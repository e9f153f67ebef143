"""`fit_guard`: which images a detector is fitted to, and which set its threshold."""

from functools import cache

import pytest
import torch

import benfourier as bf
from benfourier.data.images import content_ids
from benfourier.errors import OptionError
from tests.detectors.toys import toys

METHOD = bf.MBF(C=10.0, gamma="scale", seed=3)


def examples() -> bf.Examples:
    return toys().fitted.for_attack("bim")


@cache
def guard_with_held_out_part() -> bf.Guard:
    return bf.fit_guard(toys().classifier, METHOD, examples(), false_alarm_rate=0.1, show_progress=False)


def test_a_fifth_of_the_examples_sets_the_threshold_and_takes_no_part_in_the_fit() -> None:
    guard = guard_with_held_out_part()
    assert guard.threshold.images == pytest.approx(len(examples()) / 5, abs=1)
    assert guard.detector.summary["sources"] + guard.threshold.images == len(examples())
    unseen = [name for name in content_ids(examples().clean) if name not in guard.detector.seen]
    assert len(unseen) == guard.threshold.images


def held_out_to_measure(guard: bf.Guard) -> int:
    assert guard.card is not None
    return guard.card.attacks[0].tried


def test_the_card_is_measured_on_examples_that_are_held_out() -> None:
    guard = guard_with_held_out_part()
    assert guard.card is not None
    (rate,) = guard.card.attacks
    assert (rate.attack, rate.is_fitted, rate.tried) == ("bim", True, guard.threshold.images)
    assert rate.rejected / rate.succeeded == rate.share.value > 0.5
    (alarms,) = guard.card.alarms
    assert (alarms.kind, alarms.images) == ("those that set the thresholds", guard.threshold.images)
    assert alarms.rejected == guard.threshold.alarms


def test_the_same_seed_gives_the_same_guard() -> None:
    again = bf.fit_guard(toys().classifier, METHOD, examples(), false_alarm_rate=0.1, show_progress=False)
    assert again.threshold == guard_with_held_out_part().threshold


def test_clean_images_that_the_fit_sees_are_left_out() -> None:
    clean = torch.cat([examples().clean[:5], toys().tested.clean, examples().noisy["noisy"][:3]])
    guard = bf.fit_guard(toys().classifier, METHOD, examples(), clean=clean, false_alarm_rate=0.1, show_progress=False)
    assert guard.threshold.images == len(toys().tested.clean)
    assert guard.detector.summary["sources"] == len(examples()) - held_out_to_measure(guard)


def test_too_few_clean_images_are_refused_before_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benfourier.guard.fit.fit", lambda *_, **__: pytest.fail("the fit was started"))
    with pytest.raises(OptionError, match="that rate needs at least 199"):
        bf.fit_guard(toys().classifier, METHOD, examples(), false_alarm_rate=0.01)


def test_an_id_stands_for_its_method() -> None:
    guard = bf.fit_guard(toys().classifier, "max-softmax", examples(), false_alarm_rate=0.1, show_progress=False)
    assert guard.detector.method.name == "max-softmax"
