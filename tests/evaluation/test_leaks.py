"""Nothing that a machine is tested with was known to it, in any protocol."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from benfourier.data.draws import names_by_content
from benfourier.data.examples import Examples
from benfourier.errors import InputError
from benfourier.evaluation.bench import Bench, every_each, one_each
from benfourier.evaluation.leaks import check_apart
from benfourier.evaluation.outcomes import memo_of, run_trial
from benfourier.evaluation.plan import PROTOCOLS, Plan
from benfourier.evaluation.protocols import trials_of
from benfourier.evaluation.scoring import Bencher
from benfourier.evaluation.trials import Trial, folds_for
from tests.evaluation.tiny import changed, prepared


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Bench]:
    """Two sources: the first and the second half of the digits."""
    from sklearn.datasets import load_digits

    folder, found = tmp_path_factory.mktemp("leaks"), load_digits()
    pixels = np.rint(found.images * 255 / 16).astype(np.uint8)
    # copies of images of the first half come back in the second
    halves = {"near": slice(0, 1000), "far": slice(900, None)}
    for name, rows in halves.items():
        np.savez(folder / f"{name}.npz", x=pixels[rows], y=found.target[rows])
    text = changed(
        ('"mixed"]', '"mixed", "data-transfer"]'), ('source = "digits"', 'source = "near.npz"\nother = "far.npz"')
    )
    return prepared(folder, text)


def machines(plan: Plan, bench: Bench, protocol: str) -> Iterator[tuple[Bencher, Trial, int]]:
    for trial in trials_of(plan, bench.source, bench.other, protocol):
        entry = plan.detector(trial.detector)
        for fold in folds_for(bench, entry, trial):
            yield Bencher(bench, entry, entry.method, memo_of(bench, plan, None)), trial, fold


def pixels_of(examples: Examples) -> set[str]:
    tensors = [examples.clean, examples.noisy, *examples.attacked.values()]
    return {name for images in tensors for name in names_by_content(images)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_source_and_no_pixels_are_on_both_sides(made: tuple[Plan, Bench], protocol: str) -> None:
    plan, bench = made
    tested_ids: set[tuple[str, str]] = set()
    count = 0
    for bencher, trial, fold in machines(plan, bench, protocol):
        if trial.detector != "mbf":
            continue
        fitted = bencher.fit_set(trial, fold)
        assert set(fitted.attacks) == set(trial.fitted)
        known = pixels_of(fitted)
        for group in bencher.groups(trial.targets):
            for where, ids, images in bencher.parts(trial.source, group, fold):
                assert not {(trial.source, name) for name in fitted.ids} & {(where[0], name) for name in ids}
                assert not known & set(names_by_content(images))
                assert not bench.apart & set(names_by_content(images))
                tested_ids |= {(where[0], name) for name in ids}
                count += len(ids)
        assert not known & bench.apart
    assert count > 30
    home = bench.other if protocol == "data-transfer" else bench.source
    groups = {name for group in bench.groups[home] for name in group.ids}
    assert tested_ids == {(home, name) for name in groups}  # every source is tested


def test_images_that_set_thresholds_are_no_copies_of_others(made: tuple[Plan, Bench]) -> None:
    _, bench = made
    names = names_by_content(torch.cat([bench.calibration, bench.wrong]))
    assert len(names) == len(set(names)) == len(bench.apart)
    clean = {name for groups in bench.groups.values() for group in groups for name in names_by_content(group.clean)}
    assert not clean & bench.apart
    assert bench.beyond is None


def test_folds_are_the_same_for_all_attacks_and_spread_over_all(made: tuple[Plan, Bench]) -> None:
    _, bench = made
    large, small = bench.groups[bench.source]
    assert set(small.ids) <= set(bench.order[bench.source][:50])
    assert set(large.ids) <= set(bench.order[bench.source])
    for group in (large, small):
        counts = np.bincount([bench.folds[name] for name in group.ids], minlength=5)
        assert counts.min() >= len(group) // 5 - 3


def test_a_leaky_split_is_caught(made: tuple[Plan, Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    plan, bench = made
    trial = next(trial for trial in trials_of(plan, bench.source, bench.other, "non-transfer"))
    monkeypatch.setattr(Bencher, "fit_set", lambda self, trial, fold: bench.examples(trial.source, "bim"))
    with pytest.raises(InputError, match=r"source images that are tested were fitted to too.*split the images by"):
        run_trial(bench, plan, trial, memo_of(bench, plan, None), None)


def test_a_threshold_from_images_of_the_fit_is_caught(made: tuple[Plan, Bench]) -> None:
    plan, bench = made
    leaky = replace(bench, calibration=bench.groups[bench.source][0].clean)
    trial = next(trial for trial in trials_of(plan, bench.source, bench.other, "non-transfer"))
    with pytest.raises(InputError, match=r"images that set thresholds or are misclassified were fitted to too"):
        run_trial(leaky, plan, trial, memo_of(leaky, plan, None), None)


def test_the_same_pixels_under_another_id_are_caught(made: tuple[Plan, Bench]) -> None:
    _, bench = made
    examples = bench.groups[bench.source][0]
    fitted, rest = examples.take(np.arange(20)), examples.take(np.arange(20, 40))
    seen = frozenset(names_by_content(fitted.clean))
    check_apart(fitted, seen, frozenset(), [(rest.ids, rest.clean)])
    with pytest.raises(InputError, match=r"1 images that are tested were fitted to too"):
        check_apart(fitted, seen, frozenset(), [(("another",), fitted.clean[:1])])
    with pytest.raises(InputError, match=r"1 images that are tested were fitted to too"):
        check_apart(fitted, seen, frozenset(), [(("another",), fitted.attacked["bim"][:1])])


def test_a_fit_to_several_attacks_has_one_twin_of_each_source(made: tuple[Plan, Bench]) -> None:
    _, bench = made
    whole = bench.together(bench.source, ["bim", "deepfool", "strong"])
    assert len(whole) == len(bench.examples(bench.source, "bim"))
    one = one_each(whole)
    won = torch.stack([one.success[attack] for attack in one.attacks]).sum(0)
    assert won.tolist() == [1] * len(one)
    assert all(int(one.success[attack].sum()) > 5 for attack in one.attacks)
    for attack in one.attacks:
        rows = one.success[attack]
        kept = [name for name, hit in zip(one.ids, rows.tolist(), strict=True) if hit]
        home = bench.examples(bench.source, attack)
        assert torch.equal(one.attacked[attack][rows], home.attacked[attack][[home.ids.index(name) for name in kept]])


def test_a_fit_to_every_twin_has_all_that_succeeded_and_an_outcome_of_its_own(made: tuple[Plan, Bench]) -> None:
    plan, bench = made
    whole = bench.together(bench.source, ["bim", "deepfool", "strong"])
    every = every_each(whole)
    for attack in every.attacks:
        assert int(every.success[attack].sum()) == int(whole.success[attack].sum()) > 5
    trial = next(trial for trial in trials_of(plan, bench.source, bench.other, "mixed") if trial.detector == "mbf")
    memo = memo_of(bench, plan, None)
    entries = [replace(entry, twins="every") for entry in plan.detectors]
    (one,), (all_of_them,) = (
        run_trial(bench, chosen, trial, memo, None) for chosen in (plan, replace(plan, detectors=tuple(entries)))
    )
    assert one.key != all_of_them.key
    assert one.fit_sources == all_of_them.fit_sources
    assert [cell.sources for cell in one.cells] == [cell.sources for cell in all_of_them.cells]
    assert [cell.metrics for cell in one.cells] != [cell.metrics for cell in all_of_them.cells]


def test_data_transfer_tests_all_images_of_the_other_source_with_one_machine(made: tuple[Plan, Bench]) -> None:
    plan, bench = made
    trials = trials_of(plan, bench.source, bench.other, "data-transfer")
    trial = next(trial for trial in trials if trial.detector == "mbf")
    (found,) = run_trial(bench, plan, trial, memo_of(bench, plan, None), None)
    assert (found.folds, found.source, found.cells[0].source) == (1, bench.source, bench.other)
    assert found.cells[0].sources == int(bench.examples(bench.other, "bim").success["bim"].sum())
    both = next(trial for trial in trials_of(plan, bench.source, bench.other) if trial.detector == "mbf")
    again = {outcome.protocol: outcome for outcome in run_trial(bench, plan, both, memo_of(bench, plan, None), None)}
    assert again["data-transfer"].key == found.key
    assert again["data-transfer"].cells[0].metrics == found.cells[0].metrics
    assert again["non-transfer"].folds == 5
