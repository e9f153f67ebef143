"""Folds share what options are tried on, so that little of it is measured."""

from pathlib import Path

import pytest
import torch

from benfourier.detectors.held_out import some
from benfourier.detectors.memo import CHUNK
from benfourier.evaluation.bench import Bench
from benfourier.evaluation.outcomes import memo_of
from benfourier.evaluation.plan import Plan
from benfourier.evaluation.scoring import Bencher
from benfourier.evaluation.trials import Trial
from benfourier.evaluation.walk import FOLDS
from tests.detectors.test_memo import Counting
from tests.evaluation.tiny import changed, prepared

FEW = 30


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Bench]:
    folder: Path = tmp_path_factory.mktemp("sharing")
    return prepared(folder, changed(("sources = 70", "sources = 300"), ("orders = 2", "orders = 2\nsources = 200")))


def test_few_images_are_measured_where_options_are_tried(made: tuple[Plan, Bench]) -> None:
    plan, bench = made
    memo, measure, entry = memo_of(bench, plan, None), Counting(), plan.detector("mbf")
    bencher = Bencher(bench, entry, entry.method, memo)
    trial = Trial("mbf", ("bim",), bench.source, ())
    drawn = [some(bencher.fit_set(trial, fold), plan.seed, FEW) for fold in range(FOLDS)]
    for examples in drawn:
        assert len(examples) == FEW
        for images in (examples.clean, examples.noisy, examples.attacked["bim"][examples.success["bim"]]):
            memo.numbers(bench.subject, measure, images)
    assert sum(measure.asked) == 3 * CHUNK
    assert len({name for examples in drawn for name in examples.ids}) < 2 * FEW


def test_an_attack_may_have_noise_of_its_own(tmp_path: Path) -> None:
    own = ('name = "deepfool"\nsources = 50', 'name = "deepfool"\nown_noise = true')
    bench = prepared(tmp_path, changed(own))[1]
    assert [group.attacks for group in bench.groups[bench.source]] == [("deepfool",), ("bim", "strong")]
    levels = [group.noise_level for group in bench.groups[bench.source]]
    shared = prepared(tmp_path, changed((own[0], 'name = "deepfool"')))[1]
    (both,) = shared.groups[shared.source]
    assert min(levels) < both.noise_level < max(levels)
    aside = bench.examples(bench.source, "deepfool")
    moved = (aside.noisy - aside.clean).flatten(1).norm(dim=1).median()
    far = (aside.attacked["deepfool"] - aside.clean)[aside.success["deepfool"]].flatten(1).norm(dim=1).median()
    assert float(moved) == pytest.approx(float(far), rel=0.05)


def test_references_are_shared_by_all_fits(tmp_path: Path) -> None:
    few = ('name = "deepfool"\nsources = 50', 'name = "deepfool"\nsources = 30')
    plan, bench = prepared(tmp_path, changed(few))
    assert len(bench.groups[bench.source]) == 2
    memo = memo_of(bench, plan, None)
    assert memo.references is not None
    assert set(memo.references.ids) == {name for group in bench.groups[bench.source] for name in group.ids}
    assert len(memo.references.ids) == len(set(memo.references.ids))
    for group in bench.groups[bench.source]:
        places = [memo.references.ids.index(name) for name in group.ids]
        assert torch.equal(memo.references.images[places], group.clean)


def test_another_seed_draws_others(made: tuple[Plan, Bench]) -> None:
    bench = made[1]
    whole = bench.together(bench.source, ["bim"])
    one, same, other = (set(some(whole, seed, FEW).ids) for seed in (0, 0, 1))
    assert one == same
    assert len(one & other) < FEW
