"""Protocols: what is fitted to what, and what is asked of it."""

from itertools import groupby
from pathlib import Path

import pytest

from benfourier.errors import PlanError
from benfourier.evaluation.plan_file import read_plan
from benfourier.evaluation.trials import Target, Trial, trials
from benfourier.store.vocabulary import ProtocolName
from tests.evaluation.tiny import MIXTURE, PLAN, changed, plan_in

ALL = changed(('"mixed"]', '"mixed", "data-transfer"]'), ('source = "digits"', 'source = "digits"\nother = "far"'))


def asked(folder: Path, protocol: str) -> dict[tuple[str, ...], list[str]]:
    """By fitted attacks, what mbf is tested on under one protocol."""
    planned = trials(read_plan(plan_in(folder, ALL + MIXTURE)), "near", "far", protocol)
    return {
        trial.fitted: [f"{target.source} {target.attack}" for target in trial.targets]
        for trial in planned
        if trial.detector == "mbf"
    }


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("non-transfer", {("bim",): ["near bim"], ("deepfool",): ["near deepfool"]}),
        (
            "attack-transfer",
            {("bim",): ["near bim", "near deepfool"], ("deepfool",): ["near bim", "near deepfool"]},
        ),
        ("data-transfer", {("bim",): ["far bim"], ("deepfool",): ["far deepfool"]}),
        (
            "strength-transfer",
            {
                ("bim",): ["near strong"],
                ("deepfool",): ["near strong"],
                ("bim", "deepfool"): ["near strong"],
                ("strong",): ["near bim", "near deepfool", "near strong"],
            },
        ),
        ("mixed", {("bim", "deepfool", "strong"): ["near bim", "near deepfool", "near strong"]}),
        ("mixture", {("weak", "boundary"): ["near bim", "near deepfool", "near strong"]}),
        ("unseen", {("weak", "boundary"): ["near other"]}),
        (
            "left-out",
            {
                ("deepfool", "strong"): ["near bim"],
                ("bim", "strong"): ["near deepfool"],
                ("bim", "deepfool"): ["near strong"],
            },
        ),
    ],
)
def test_a_protocol_fits_and_tests_as_it_says(
    tmp_path: Path, protocol: str, expected: dict[tuple[str, ...], list[str]]
) -> None:
    assert asked(tmp_path, protocol) == expected


def test_an_attack_that_takes_no_part_in_data_transfer_is_not_asked_for(tmp_path: Path) -> None:
    spared = ALL.replace("sources = 50", "sources = 50\ntransfer = false")
    planned = trials(read_plan(plan_in(tmp_path, spared)), "near", "far", "data-transfer")
    assert {trial.fitted for trial in planned} == {("bim",)}
    none = spared.replace('name = "bim"\n', 'name = "bim"\ntransfer = false\n')
    with pytest.raises(PlanError, match="every boundary attack has transfer = false; let one take part"):
        read_plan(plan_in(tmp_path, none))


def test_a_strength_attack_has_boundary_ones_beside_it_on_the_second_source_too(tmp_path: Path) -> None:
    fewer = ALL.replace('role = "strength"', 'role = "strength"\ntransfer = 20')
    with pytest.raises(PlanError, match=r"attacks\[2\].transfer is 20; no boundary attack .* sources has, or false"):
        read_plan(plan_in(tmp_path, fewer))
    spared = ALL.replace('name = "bim"\n', 'name = "bim"\ntransfer = false\n')
    with pytest.raises(PlanError, match=r"attacks\[2\].transfer is true; no boundary attack"):
        read_plan(plan_in(tmp_path, spared))
    same = fewer.replace('name = "bim"\n', 'name = "bim"\ntransfer = 20\n')
    assert [attack.sources for attack in read_plan(plan_in(tmp_path, same)).for_second_source.attacks] == [20, 50, 20]


def test_trials_of_one_fit_stand_side_by_side(tmp_path: Path) -> None:
    planned = trials(read_plan(plan_in(tmp_path, ALL)), "near", "far")
    tasks = [(fit, list(group)) for fit, group in groupby(planned, key=lambda trial: trial.fit)]
    assert len(tasks) == len(dict(tasks)) == 2 * 5
    one = dict(tasks)["mbf", ("bim",), "near"]
    assert [trial.protocol for trial in one] == [
        "non-transfer", "attack-transfer", "strength-transfer", "data-transfer"
    ]  # fmt: skip
    assert one[0].targets == (Target("near", "bim"),)


def test_a_detector_with_every_twin_does_not_repeat_single_fits_of_the_same_with_one(tmp_path: Path) -> None:
    every = ALL.replace("orders = 2", 'orders = 2\ntwins = "every"')
    same = every + '\n[[detectors]]\nname = "mbf"\nlabel = "one"\norders = 2\nC = 1.0\ngamma = "scale"\n'
    for text, single in ((every, 3), (same, 0)):
        planned = trials(read_plan(plan_in(tmp_path, text)), "near", "far")
        fits = [fitted for detector, fitted, _ in dict.fromkeys(trial.fit for trial in planned) if detector == "mbf"]
        assert [len(fitted) for fitted in fits].count(1) == single
        assert {("bim", "deepfool"), ("bim", "deepfool", "strong")} <= set(fits)
    one_by_one = every.replace('"strength-transfer", "mixed", ', "")
    with pytest.raises(PlanError, match=r"detectors.twins of 'mbf' is 'every', .* no protocol has one: add 'mixed'"):
        read_plan(plan_in(tmp_path, one_by_one))


def test_cheap_detectors_come_first(tmp_path: Path) -> None:
    text = PLAN.replace("[[detectors]]", '[[detectors]]\nname = "c1c2"\n[[detectors]]')
    planned = trials(read_plan(plan_in(tmp_path, text)), "near", "", "mixed")
    assert [trial.detector for trial in planned] == ["max-softmax", "mbf", "c1c2"]


def test_a_trial_says_what_it_is() -> None:
    trial = Trial(ProtocolName.ALL_ATTACKS, "mbf", ("bim", "deepfool"), "near", ())
    assert str(trial) == "mbf fitted to bim, deepfool, mixed"


@pytest.mark.parametrize(
    ("protocol", "attacks", "message"),
    [
        ("mixture", "", "protocols hold mixture, but no attack has role = 'mixture'"),
        ("unseen", MIXTURE.rpartition("[[attacks]]")[0], "protocols hold unseen, .* role = 'unseen'"),
    ],
)
def test_a_protocol_without_its_attacks_is_refused(tmp_path: Path, protocol: str, attacks: str, message: str) -> None:
    text = changed(('"mixed"]', f'"mixed", "{protocol}"]')) + attacks
    with pytest.raises(PlanError, match=message):
        read_plan(plan_in(tmp_path, text))
