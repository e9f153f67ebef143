"""Attacks made in pieces are those that the whole set is made of."""

from pathlib import Path

import numpy as np
import pytest

from benfourier.data import open_source
from benfourier.errors import InputError
from benfourier.evaluation.executors import InProcess
from benfourier.evaluation.plan_reading import read_plan
from benfourier.evaluation.precrafting import precraft
from benfourier.evaluation.preparing import prepare, survey
from benfourier.evaluation.studying import parts_of_bench
from benfourier.store.cache import Cache, open_cache
from benfourier.store.records import Crafted
from tests.evaluation.tiny import PLAN, changed, plan_in


@pytest.mark.parametrize(("chunk", "count"), [("", 5), ("chunk = 25", 8)])  # bim and strong have 70 images, deepfool 50
def test_what_pieces_leave_in_the_cache_is_all_that_the_set_needs(chunk: str, count: int, tmp_path: Path) -> None:
    plan = read_plan(plan_in(tmp_path, PLAN.replace("sources = 70", f"sources = 70\n{chunk}")))
    whole, pieces = open_cache(tmp_path / "whole"), open_cache(tmp_path / "pieces")
    assert whole is not None
    assert pieces is not None
    told: list[Crafted] = []
    prepare(plan, survey(plan, whole, False), told.append, whole, False)
    ground = survey(plan, pieces, False)
    precraft(plan, ground, InProcess(), pieces, False)
    made = {path.name for path in pieces.folder.rglob("*.safetensors")}
    again: list[Crafted] = []
    prepare(plan, ground, again.append, pieces, False)
    added = {path.name for path in pieces.folder.rglob("*.safetensors")} - made
    needed = {path.name for path in whole.folder.rglob("*.safetensors")}
    assert sum(_is_attack(pieces, name) for name in made & needed) == count
    assert not any(_is_attack(pieces, name) for name in added)  # only what the network says of noisy twins
    assert again == told


def test_sources_that_leave_nothing_for_thresholds_are_too_many(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "cache")
    greedy = read_plan(plan_in(tmp_path, changed(("sources = 70", "sources = 1700"))))
    with pytest.raises(InputError, match=r"none of the \d+ images .*sizes.sources is 1700\); ask for fewer"):
        survey(greedy, cache, False)
    unset = read_plan(plan_in(tmp_path, changed(("sources = 70", "sources = 1700"), ("= 220", "= 0"))))
    assert len(survey(unset, cache, False).found.calibration) == 0


def _is_attack(cache: Cache, name: str) -> bool:
    arrays = cache.get(name.removesuffix(".safetensors"))
    return arrays is not None and "success" in arrays


@pytest.mark.parametrize(
    ("transfer", "count", "tried"),  # 2 pieces for each attack on the first source but 1 for deepfool, 1 on the second
    [("false", 7, {"bim": 20, "strong": 20}), ("12", 8, {"bim": 20, "strong": 20, "deepfool": 12})],
)
def test_the_second_source_is_spared_attacks_as_the_plan_says(
    transfer: str, count: int, tried: dict[str, int], tmp_path: Path
) -> None:
    digits = open_source("digits")
    dark = digits.pixels(range(len(digits))) // 2
    np.savez(tmp_path / "dark.npz", x=dark, y=digits.labels)
    text = changed(
        ('"mixed"]', '"mixed", "data-transfer"]'),
        ('source = "digits"', 'source = "digits"\nother = "dark.npz"'),
        ("sources = 50", f"sources = 50\ntransfer = {transfer}"),
        ("calibration = 220", "calibration = 220\nother = 20"),
    )
    plan, cache = read_plan(plan_in(tmp_path, text)), open_cache(tmp_path / "cache")
    assert cache is not None
    ground = survey(plan, cache, False)
    precraft(plan, ground, InProcess(), cache, False)
    made = sum(_is_attack(cache, path.name) for path in cache.folder.rglob("*.safetensors"))
    told: list[Crafted] = []
    bench = prepare(plan, ground, told.append, cache, False)
    assert made == count
    assert sum(_is_attack(cache, path.name) for path in cache.folder.rglob("*.safetensors")) == made
    there = [record for record in told if record.source == bench.other]
    assert {record.attack: record.funnel[0][1] for record in there} == tried
    assert [tuple(part.examples.attacks) for part in parts_of_bench(bench, plan)] == [
        ("bim", "deepfool", "strong"),
        ("bim", "deepfool", "strong"),
        tuple(attack for attack in ("bim", "deepfool", "strong") if attack in tried),
    ]
