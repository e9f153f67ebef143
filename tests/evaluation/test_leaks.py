"""Nothing that a machine is tested with was known to it, in any protocol."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from benfourier.data.examples import Examples
from benfourier.data.images import content_ids
from benfourier.errors import InputError
from benfourier.evaluation import outcomes as outcomes_module
from benfourier.evaluation.evaluation_data import EvaluationData, every_twin, one_twin
from benfourier.evaluation.outcomes import check_apart, fit_examples, run_task, target_images
from benfourier.evaluation.trials import Trial, trials
from benfourier.store.records import Outcome
from benfourier.store.vocabulary import ProtocolName
from tests.evaluation.tiny import MIXTURE, changed, prepared


@pytest.fixture(name="data", scope="module")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> EvaluationData:
    """Two sources: the first and the second half of the digits."""
    return prepare_two(tmp_path_factory, "")


@pytest.fixture(name="mixed", scope="module")
def two_sources_and_a_mixture(tmp_path_factory: pytest.TempPathFactory) -> EvaluationData:
    return prepare_two(tmp_path_factory, MIXTURE)


def prepare_two(tmp_path_factory: pytest.TempPathFactory, more: str) -> EvaluationData:
    from sklearn.datasets import load_digits

    folder, digits = tmp_path_factory.mktemp("leaks"), load_digits()
    pixels = np.rint(digits.images * 255 / 16).astype(np.uint8)
    # copies of images of the first half come back in the second
    halves = {"near": slice(0, 1000), "far": slice(900, None)}
    for name, rows in halves.items():
        np.savez(folder / f"{name}.npz", x=pixels[rows], y=digits.target[rows])
    text = changed(
        ('"mixed"]', '"mixed", "data-transfer"]'), ('source = "digits"', 'source = "near.npz"\nother = "far.npz"')
    )
    return replace(prepared(folder, text + more), cache=None)


def fits(data: EvaluationData, protocol: str) -> Iterator[tuple[Trial, int]]:
    for trial in trials(data.plan, data.source, data.other, protocol):
        for fold in trial.folds(data):
            yield trial, fold


def first_trial(data: EvaluationData, protocol: str, detector: str = "mbf") -> Trial:
    return next(trial for trial in trials(data.plan, data.source, data.other, protocol) if trial.detector == detector)


def outcomes(data: EvaluationData, *task: Trial) -> list[Outcome]:
    return [record for record in run_task(data, task) if isinstance(record, Outcome)]


def pixels_of(examples: Examples) -> set[str]:
    tensors = [examples.clean, *examples.noisy.values(), *examples.adversarial.values()]
    return {name for images in tensors for name in content_ids(images)}


@pytest.mark.parametrize("protocol", ProtocolName)
def test_no_source_and_no_pixels_are_on_both_sides(request: pytest.FixtureRequest, protocol: ProtocolName) -> None:
    with_mixture = protocol in (ProtocolName.MIXTURE, ProtocolName.UNSEEN)
    data: EvaluationData = request.getfixturevalue("mixed" if with_mixture else "data")
    tested_ids: set[tuple[str, str]] = set()
    count = 0
    for trial, fold in fits(data, protocol):
        if trial.detector != "mbf":
            continue
        fitted = fit_examples(data, trial, fold)
        assert set(fitted.attacks) == set(trial.fitted)
        known = pixels_of(fitted)
        for (source, _, _), (ids, images) in target_images(data, trial, trial.targets, fold).items():
            tested = {(source, name) for name in ids}
            assert not {(trial.source, name) for name in fitted.ids} & tested
            assert not known & set(content_ids(images))
            assert not data.held_out_names & set(content_ids(images))
            tested_ids |= tested
            count += len(ids)
        assert not known & data.held_out_names
    assert count > 30
    home = data.other if protocol == "data-transfer" else data.source
    tested_attacks = {target.attack for trial, _ in fits(data, protocol) for target in trial.targets}
    sets = [group for group in data.example_sets[home] if tested_attacks.intersection(group.attacks)]
    groups = {name for group in sets for name in group.ids}
    assert tested_ids == {(home, name) for name in groups}  # every source is tested


def test_images_that_set_thresholds_are_no_copies_of_others(data: EvaluationData) -> None:
    names = data.calibration.joined(data.misclassified).content_ids
    assert len(names) == len(set(names)) == len(data.held_out_names)
    clean = {name for groups in data.example_sets.values() for group in groups for name in content_ids(group.clean)}
    assert not clean & data.held_out_names
    assert data.extra_clean is None


def test_folds_are_the_same_for_all_attacks_and_spread_over_all(data: EvaluationData) -> None:
    large, small = data.example_sets[data.source]
    assert set(small.ids) <= set(data.images[data.source].ids[:50])
    assert set(large.ids) <= set(data.images[data.source].ids)
    for group in (large, small):
        counts = np.bincount([data.folds[name] for name in group.ids], minlength=5)
        assert counts.min() >= len(group) // 5 - 3


def test_a_leaky_split_is_caught(data: EvaluationData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes_module, "fit_examples", lambda data, trial, fold: data.examples(trial.source, "bim"))
    with pytest.raises(InputError, match=r"source images that are tested were fitted to too.*split the images by"):
        run_task(data, (first_trial(data, "non-transfer"),))


def test_a_threshold_from_images_of_the_fit_is_caught(data: EvaluationData) -> None:
    leaky = replace(data, calibration=data.images[data.source])
    with pytest.raises(InputError, match=r"images that set thresholds or are misclassified were fitted to too"):
        run_task(leaky, (first_trial(data, "non-transfer"),))


def test_the_same_pixels_under_another_id_are_caught(data: EvaluationData) -> None:
    examples = data.example_sets[data.source][0]
    fitted, rest = examples.take(np.arange(20)), examples.take(np.arange(20, 40))
    seen = frozenset(content_ids(fitted.clean))
    check_apart(fitted, seen, frozenset(), [(rest.ids, rest.clean)])
    with pytest.raises(InputError, match=r"1 images that are tested were fitted to too"):
        check_apart(fitted, seen, frozenset(), [(("another",), fitted.clean[:1])])
    with pytest.raises(InputError, match=r"1 images that are tested were fitted to too"):
        check_apart(fitted, seen, frozenset(), [(("another",), fitted.adversarial["bim"][:1])])


def test_a_fit_to_several_attacks_has_one_twin_of_each_source(data: EvaluationData) -> None:
    whole = data.joined(data.source, ["bim", "deepfool", "strong"])
    assert len(whole) == len(data.examples(data.source, "bim"))
    one = one_twin(whole)
    succeeded = torch.stack([one.success[attack] for attack in one.attacks]).sum(0)
    assert succeeded.tolist() == [1] * len(one)
    assert all(int(one.success[attack].sum()) > 5 for attack in one.attacks)
    for attack in one.attacks:
        rows = one.success[attack]
        ids = [name for name, hit in zip(one.ids, rows.tolist(), strict=True) if hit]
        home = data.examples(data.source, attack)
        assert torch.equal(
            one.adversarial[attack][rows], home.adversarial[attack][[home.ids.index(name) for name in ids]]
        )


def test_a_fit_to_every_twin_has_all_that_succeeded_and_an_outcome_of_its_own(data: EvaluationData) -> None:
    whole = data.joined(data.source, ["bim", "deepfool", "strong"])
    every = every_twin(whole)
    for attack in every.attacks:
        assert int(every.success[attack].sum()) == int(whole.success[attack].sum()) > 5
    trial = first_trial(data, "mixed")
    entries = tuple(replace(entry, twins="every") for entry in data.plan.detectors)
    other = replace(data, plan=replace(data.plan, detectors=entries))
    (one,), (all_of_them,) = (outcomes(each, trial) for each in (data, other))
    assert one.key != all_of_them.key
    assert one.fit_sources == all_of_them.fit_sources
    assert [cell.sources for cell in one.cells] == [cell.sources for cell in all_of_them.cells]
    assert [cell.metrics for cell in one.cells] != [cell.metrics for cell in all_of_them.cells]


def test_data_transfer_tests_all_images_of_the_other_source_with_one_fit(data: EvaluationData) -> None:
    (result,) = outcomes(data, first_trial(data, "data-transfer"))
    assert (result.folds, result.source, result.cells[0].source) == (1, data.source, data.other)
    assert result.cells[0].sources == int(data.examples(data.other, "bim").success["bim"].sum())
    first = first_trial(data, "non-transfer")
    task = [trial for trial in trials(data.plan, data.source, data.other) if trial.fit == first.fit]
    again = {outcome.protocol: outcome for outcome in outcomes(data, *task)}
    assert again["data-transfer"].key == result.key
    assert again["data-transfer"].cells[0].metrics == result.cells[0].metrics
    assert again["non-transfer"].folds == 5
