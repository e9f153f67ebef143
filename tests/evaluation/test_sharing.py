"""Folds share what options are tried on, so that little of it is measured."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benfourier.detectors.feature_cache import CHUNK
from benfourier.detectors.features import few_sources
from benfourier.evaluation.evaluation_data import FOLDS, EvaluationData
from benfourier.evaluation.outcomes import fit_examples
from benfourier.evaluation.trials import Trial
from benfourier.store.vocabulary import ProtocolName
from tests.detectors.test_feature_cache import Brightness
from tests.evaluation.tiny import changed, prepared

FEW = 30


@pytest.fixture(name="data", scope="module")
def data_of_many_sources(tmp_path_factory: pytest.TempPathFactory) -> EvaluationData:
    folder: Path = tmp_path_factory.mktemp("sharing")
    many = prepared(folder, changed(("sources = 70", "sources = 300"), ("orders = 2", "orders = 2\nsources = 200")))
    return replace(many, cache=None)


def test_few_images_are_measured_where_options_are_tried(data: EvaluationData) -> None:
    cache, extractor = data.feature_cache, Brightness()
    trial = Trial(ProtocolName.SAME_ATTACK, "mbf", ("bim",), data.source, ())
    drawn = [few_sources(fit_examples(data, trial, fold), data.plan.seed, FEW) for fold in range(FOLDS)]
    for examples in drawn:
        assert len(examples) == FEW
        for images in (examples.clean, examples.noisy["noisy"], examples.adversarial["bim"][examples.success["bim"]]):
            cache.features(extractor, images, [""] * len(images))
    assert sum(extractor.asked) == 3 * CHUNK
    assert len({name for examples in drawn for name in examples.ids}) < 2 * FEW


def test_an_attack_may_have_noise_of_its_own(tmp_path: Path) -> None:
    own = ('name = "deepfool"\nsources = 50', 'name = "deepfool"\nown_noise = true')
    data = prepared(tmp_path, changed(own))
    assert [group.attacks for group in data.example_sets[data.source]] == [("deepfool",), ("bim", "strong")]
    levels = [group.noise_levels["noisy"] for group in data.example_sets[data.source]]
    shared = prepared(tmp_path, changed((own[0], 'name = "deepfool"')))
    (both,) = shared.example_sets[shared.source]
    assert min(levels) < both.noise_levels["noisy"] < max(levels)
    aside = data.examples(data.source, "deepfool")
    moved = (aside.noisy["noisy"] - aside.clean).flatten(1).norm(dim=1).median()
    far = (aside.adversarial["deepfool"] - aside.clean)[aside.success["deepfool"]].flatten(1).norm(dim=1).median()
    assert float(moved) == pytest.approx(float(far), rel=0.05)


def test_references_are_shared_by_all_fits(tmp_path: Path) -> None:
    few = ('name = "deepfool"\nsources = 50', 'name = "deepfool"\nsources = 30')
    data = replace(prepared(tmp_path, changed(few)), cache=None)
    assert len(data.example_sets[data.source]) == 2
    cache = data.feature_cache
    assert cache.reference_pool is not None
    assert set(cache.reference_pool.ids) == {name for group in data.example_sets[data.source] for name in group.ids}
    assert len(cache.reference_pool.ids) == len(set(cache.reference_pool.ids))
    for group in data.example_sets[data.source]:
        places = [cache.reference_pool.ids.index(name) for name in group.ids]
        assert torch.equal(cache.reference_pool.images[places], group.clean)


def test_another_seed_draws_others(data: EvaluationData) -> None:
    whole = data.joined(data.source, ["bim"])
    one, same, other = (set(few_sources(whole, seed, FEW).ids) for seed in (0, 0, 1))
    assert one == same
    assert len(one & other) < FEW
