"""Attacks made in pieces are those that the whole set is made of."""

from pathlib import Path

from benfourier.evaluation.executors import InProcess
from benfourier.evaluation.plan_reading import read_plan
from benfourier.evaluation.precrafting import precraft
from benfourier.evaluation.preparing import prepare, survey
from benfourier.store.cache import open_cache
from benfourier.store.records import Crafted
from tests.evaluation.tiny import plan_in


def test_what_pieces_leave_in_the_cache_is_all_that_the_set_needs(tmp_path: Path) -> None:
    plan = read_plan(plan_in(tmp_path))
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
    assert len(made & needed) >= 5  # bim and strong in two chunks each, deepfool in one
    assert len(added) <= 4  # what the network says of noisy twins, which need all attacks
    assert again == told
