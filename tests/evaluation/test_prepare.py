"""Attacks in chunks, joined to example sets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benfourier.data import open_source
from benfourier.errors import InputError
from benfourier.evaluation.evaluation_data import EvaluationData
from benfourier.evaluation.plan_file import read_plan
from benfourier.evaluation.prepare import AttackChunk, attack_chunk, attack_images, open_images
from benfourier.evaluation.studies.study import data_parts
from benfourier.executors import LocalPool, Serial
from benfourier.models.weights import weights_digest
from benfourier.store.cache import Cache, open_cache
from benfourier.store.records import AttackSummary
from tests.evaluation.tiny import PLAN, changed, plan_in


@pytest.mark.parametrize(("chunk", "count"), [("", 5), ("chunk = 25", 8)])  # bim and strong have 70 images, deepfool 50
def test_chunks_leave_in_the_cache_all_that_the_set_needs(chunk: str, count: int, tmp_path: Path) -> None:
    plan = read_plan(plan_in(tmp_path, PLAN.replace("sources = 70", f"sources = 70\n{chunk}")))
    whole, pieces = open_cache(tmp_path / "whole"), open_cache(tmp_path / "pieces")
    assert whole is not None
    assert pieces is not None
    images, first, again = open_images(plan, whole, False), list[AttackSummary](), list[AttackSummary]()
    attack_images(images, Serial(), first.append, False)
    for attack in plan.attacks:
        for start in range(0, attack.sources, plan.chunk):
            attack_chunk(replace(images, cache=pieces), AttackChunk("digits", attack.label, start))
    before = {path.name for path in pieces.folder.rglob("*.safetensors")}
    attack_images(replace(images, cache=pieces), Serial(), again.append, False)
    added = {path.name for path in pieces.folder.rglob("*.safetensors")} - before
    needed = {path.name for path in whole.folder.rglob("*.safetensors")}
    assert sum(_is_attack(pieces, name) for name in before & needed) == count
    assert not any(_is_attack(pieces, name) for name in added)  # only the network's answers to noisy twins
    assert again == first


def test_processes_and_this_one_make_the_same_examples_with_and_without_a_cache(tmp_path: Path) -> None:
    plan, cache = read_plan(plan_in(tmp_path)), open_cache(tmp_path / "cache")
    images = open_images(plan, open_cache(True), False)
    here, there = list[AttackSummary](), list[AttackSummary]()
    torch.set_num_threads(1)
    attack_images(replace(images, cache=None), Serial(), here.append, False)
    attack_images(replace(images, cache=cache), LocalPool(2), there.append, False)
    assert here == there


def test_data_come_back_from_their_folder(tmp_path: Path) -> None:
    plan = read_plan(plan_in(tmp_path))
    images = open_images(plan, open_cache(True), False)
    images.save(tmp_path)
    loaded = EvaluationData.load(tmp_path, plan, None)
    assert weights_digest(loaded.classifier.module) == weights_digest(images.classifier.module)
    assert loaded.classifier.classes == images.classifier.classes
    assert loaded.images.keys() == images.images.keys()
    assert loaded.images["digits"].ids == images.images["digits"].ids
    assert torch.equal(loaded.images["digits"].images, images.images["digits"].images)


def test_sources_that_leave_nothing_for_thresholds_are_too_many(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "cache")
    greedy = read_plan(plan_in(tmp_path, changed(("sources = 70", "sources = 1700"))))
    with pytest.raises(InputError, match=r"none of the \d+ images .*sizes.sources is 1700\); ask for fewer"):
        open_images(greedy, cache, False)
    unset = read_plan(plan_in(tmp_path, changed(("sources = 70", "sources = 1700"), ("= 220", "= 0"))))
    assert len(open_images(unset, cache, False).calibration) == 0


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
    summaries: list[AttackSummary] = []
    data = attack_images(open_images(plan, cache, False), Serial(), summaries.append, False)
    assert sum(_is_attack(cache, path.name) for path in cache.folder.rglob("*.safetensors")) == count
    there = [record for record in summaries if record.source == data.other]
    assert {record.attack: record.remaining[0][1] for record in there} == tried
    assert [tuple(part.examples.attacks) for part in data_parts(data)] == [
        ("bim", "deepfool", "strong"),
        ("bim", "deepfool", "strong"),
        tuple(attack for attack in ("bim", "deepfool", "strong") if attack in tried),
    ]
