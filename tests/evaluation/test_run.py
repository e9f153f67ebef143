"""Runs: from a plan to a ledger, interrupted or not."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from benfourier.evaluation.plan_file import read_plan
from benfourier.evaluation.prepare import AttackChunk
from benfourier.evaluation.run import Evaluation, Summary, dry_run, evaluate
from benfourier.executors import LocalPool, Shared, TaskFailure
from benfourier.store.ledger import read, records
from benfourier.store.records import (
    AttackSummary,
    Cost,
    Failure,
    Inputs,
    KsResult,
    Outcome,
    Picture,
    Profile,
    Run,
    Scores,
)
from tests.cli.calling import call
from tests.evaluation.tiny import MIXTURE, PLAN, changed, plan_in

ROOT = Path(__file__).parents[2]
T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")
TIMES = ("date", "seconds")
BROKEN = '\n[[detectors]]\nname = "lid"\nlabel = "broken"\nk = 90\n'  # more neighbours than there are images
EVERY = '\n[[detectors]]\nname = "mbf"\nlabel = "every twin"\ntwins = "every"\norders = 2\nC = 1.0\ngamma = "scale"\n'
SECOND = '\n[[detectors]]\nname = "second-opinion"\nsecond_model = "tests.evaluation.tiny:network"\n'
SMALL = changed(
    ('"non-transfer", "attack-transfer", "strength-transfer", "mixed"', '"non-transfer", "attack-transfer"')
)


def run(folder: Path, text: str = PLAN, name: str = "l.jsonl", **options: Any) -> Summary:
    return evaluate(read_plan(plan_in(folder, text)), folder / name, show_progress=False, **options).summary


def lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a ledger without dates and times; equal ones once."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    without_times = {
        json.dumps({key: value for key, value in line.items() if key not in TIMES}, sort_keys=True) for line in entries
    }
    return [json.loads(line) for line in sorted(without_times)]


def test_a_plan_becomes_a_ledger(tmp_path: Path) -> None:
    summary = run(tmp_path)
    assert summary.failures == ()
    first, *rest = records(tmp_path / "l.jsonl")
    assert isinstance(first, Run)
    assert first.network["accuracy"] > 0.8
    assert (first.settings["sources"], first.settings["calibration"]) == (70, 220)
    summaries = {record.attack: record for record in rest if isinstance(record, AttackSummary)}
    assert summaries["bim"].noise_level == summaries["strong"].noise_level != summaries["deepfool"].noise_level
    outcomes = [record for record in rest if isinstance(record, Outcome)]
    assert len(outcomes) == summary.outcomes == 2 * (2 + 2 + 4 + 1)
    assert {record.folds for record in outcomes} == {5}
    for record in outcomes:
        for cell in record.cells:
            assert 30 <= cell.sources <= summaries[cell.attack].successes
            assert 0 <= cell.metrics["auroc"].low <= cell.metrics["auroc"].value <= cell.metrics["auroc"].high <= 1
            assert ("auroc-gain" in cell.metrics) == (record.detector != "max-softmax")
            assert {"tpr@5%", "fpr-noisy@5%"} <= cell.metrics.keys()
            assert "tpr@1%" not in cell.metrics
    mbf_outcomes = {(r.protocol, r.fitted): r for r in outcomes if r.detector == "mbf"}
    alone, row = mbf_outcomes["non-transfer", ("bim",)], mbf_outcomes["attack-transfer", ("bim",)]
    assert row.cells[0].metrics.items() <= alone.cells[0].metrics.items()
    assert {"auroc-clean", "auroc-noisy"} <= alone.cells[0].metrics.keys() - row.cells[0].metrics.keys()
    assert row.cells[0].roc is None
    assert alone.cells[0].roc is not None
    (inputs,) = [record for record in rest if isinstance(record, Inputs)]
    assert {record.inputs for record in outcomes} == {inputs.key}
    single = {record.outcome: record for record in rest if isinstance(record, Scores)}
    assert len(single[alone.key].ids) == alone.cells[0].sources
    assert alone.key != row.key


def test_a_fit_to_the_mixture_is_tested_on_known_and_on_unseen_attacks_and_on_changed_clean_images(
    tmp_path: Path,
) -> None:
    protocols = '"non-transfer", "attack-transfer", "strength-transfer", "mixed"'
    summary = run(tmp_path, changed((protocols, '"mixture", "unseen"')) + MIXTURE + SECOND)
    assert summary.failures == ()
    outcomes = {(o.detector, o.protocol): o for o in read(tmp_path / "l.jsonl") if isinstance(o, Outcome)}
    assert len(outcomes) == 2 * 3
    seen, unseen = outcomes["mbf", "mixture"], outcomes["mbf", "unseen"]
    assert seen.fitted == unseen.fitted == ("weak", "boundary")
    assert [cell.attack for cell in seen.cells] == ["bim", "deepfool", "strong"]
    assert [cell.attack for cell in unseen.cells] == ["other"]
    changes = {"fpr-noise@5%", "fpr-jpeg@5%", "fpr-blurred@5%", "fpr-brighter@5%", "fpr-misclassified@5%"}
    assert changes <= seen.overall.keys()
    assert not changes.isdisjoint(unseen.overall)
    assert all(0 <= seen.overall[name].value <= 1 for name in changes)
    assert {"worst-auroc", "mead@5%"} <= outcomes["second-opinion", "unseen"].overall.keys()


def test_a_second_start_does_nothing_again_and_a_larger_plan_only_what_is_new(tmp_path: Path) -> None:
    first = run(tmp_path, SMALL)
    assert (first.trials, first.run, first.outcomes) == (8, 8, 8)
    again = run(tmp_path, SMALL)
    assert (again.trials, again.run, again.outcomes, again.records) == (8, 0, 0, 1)
    more = run(tmp_path, SMALL + '\n[[detectors]]\nname = "mbf"\nlabel = "more"\norders = 3\nC = 1.0\ngamma = 1.0\n')
    assert (more.trials, more.run, more.outcomes) == (12, 4, 4)
    only = run(tmp_path, PLAN, only="mixed")
    assert (only.trials, only.outcomes) == (2, 2)


def test_one_more_attack_leaves_the_trials_of_the_others_alone(tmp_path: Path) -> None:
    run(tmp_path, SMALL)
    more = SMALL + '\n[[attacks]]\nname = "bim-fixed"\neps = 0.1\nlabel = "weaker"\nrole = "strength"\n'
    assert run(tmp_path, more).run == 0


def test_processes_find_what_one_process_finds(tmp_path: Path) -> None:
    run(tmp_path, SMALL)
    summary = run(tmp_path, SMALL, "pool.jsonl", executor=LocalPool(2))
    assert summary.failures == ()
    assert lines(tmp_path / "pool.jsonl") == lines(tmp_path / "l.jsonl")


def test_a_trial_that_fails_is_reported_and_tried_again(tmp_path: Path) -> None:
    broken = SMALL + BROKEN
    summary = run(tmp_path, broken)
    assert summary.outcomes == 8
    assert {failure.trial for failure in summary.failures} == {
        f"broken fitted to {attack}, {protocol}"
        for attack in ("bim", "deepfool")
        for protocol in ("non-transfer", "attack-transfer")
    }
    assert "90 neighbours" in summary.failures[0].error
    again = run(tmp_path, broken)
    assert (again.run, len(again.failures)) == (4, 4)
    assert sum(isinstance(record, Failure) for record in read(tmp_path / "l.jsonl")) == 4


def test_an_attack_that_hardly_succeeds_is_shown_as_too_few(tmp_path: Path) -> None:
    text = SMALL.replace('name = "deepfool"', 'name = "bim-fixed"\nlabel = "weak"\neps = 0.005')
    summary = run(tmp_path, text)
    assert summary.failures == ()
    mbf_outcomes = {
        (r.protocol, r.fitted): r for r in read(summary.ledger) if isinstance(r, Outcome) and r.method == "mbf"
    }
    weak = mbf_outcomes["attack-transfer", ("weak",)]
    assert {cell.note for cell in weak.cells} == {f"too few: {weak.fit_sources} successes to fit to, 30 are needed"}
    assert (weak.overall, weak.folds) == ({}, 0)
    good, bad = mbf_outcomes["attack-transfer", ("bim",)].cells
    assert good.metrics
    assert (bad.metrics, bad.roc, bad.note[:7]) == ({}, None, "too few")


def test_studies_are_made_once_and_pictures_lie_beside_the_ledger(tmp_path: Path) -> None:
    text = SMALL.replace(', "attack-transfer"]', ', "mixed"]\nstudies = ["ks", "profile", "cost", "pictures"]')
    text += EVERY
    text = text.replace("sources = 70", "sources = 36").replace("sources = 50\n", "")
    summary = run(tmp_path, text)
    assert summary.failures == ()
    all_records = read(summary.ledger)
    assert {r.detector for r in all_records if isinstance(r, Cost)} == {"max-softmax", "mbf"}
    assert [r.protocol for r in all_records if isinstance(r, Outcome) and r.detector == "every twin"] == ["mixed"]
    assert {r.study for r in all_records if isinstance(r, KsResult)} == {"h1", "h2.1", "h2.2", "h2.3", "h2-sources"}
    assert {r.kind for r in all_records if isinstance(r, Profile)} == {"clean", "noisy", "bim", "deepfool", "strong"}
    pictures = [r for r in all_records if isinstance(r, Picture)]
    assert pictures
    assert all((tmp_path / file).is_file() for picture in pictures for file in picture.files)
    again = run(tmp_path, text)
    assert (again.outcomes, again.records) == (0, 1)


def test_costs_are_of_detectors_that_take_what_processes_have_left_in_the_cache(tmp_path: Path) -> None:
    text = SMALL.replace(', "attack-transfer"]', "]")
    cache, threads = tmp_path / "cache", torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run(tmp_path, text, executor=LocalPool(2), cache=cache)
        before = {file for file in cache.rglob("*") if file.is_file()}
        with_costs = text.replace('["non-transfer"]', '["non-transfer"]\nstudies = ["cost"]')
        summary = run(tmp_path, with_costs, executor=LocalPool(2), cache=cache)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert (summary.run, summary.records) == (0, 3)
    assert {file for file in cache.rglob("*") if file.is_file()} == before
    assert run(tmp_path, with_costs, cache=cache).records == 1


def test_an_evaluation_holds_its_data_and_all_outcomes_of_the_plan(tmp_path: Path) -> None:
    run(tmp_path, SMALL, only="non-transfer")
    whole: Evaluation = evaluate(read_plan(plan_in(tmp_path, SMALL)), tmp_path / "l.jsonl", show_progress=False)
    assert (len(whole.outcomes), whole.summary.outcomes) == (8, 4)
    assert set(whole.data.folds) >= set(whole.data.examples("digits", "bim").ids)
    without = evaluate(read_plan(plan_in(tmp_path, SMALL)), tmp_path / "x.jsonl", cache=False, show_progress=False)
    assert without.data.cache is None
    assert lines(tmp_path / "x.jsonl") == lines(tmp_path / "l.jsonl")


def test_a_dry_run_knows_which_outcomes_a_plan_would_leave_behind(tmp_path: Path) -> None:
    ledger = tmp_path / "l.jsonl"
    run(tmp_path, SMALL)

    def left(text: str, file: Path = ledger) -> tuple[int, int]:
        plan = dry_run(read_plan(plan_in(tmp_path, text)), file)
        return plan.left_behind, plan.outcomes

    assert left(SMALL) == (0, 8)
    assert left(SMALL.replace("seed = 3", "seed = 4")) == (8, 8)
    assert left(SMALL.replace('source = "digits"', 'source = "digits"\nskip = 5')) == (8, 8)
    assert left(SMALL.replace("orders = 2", "orders = 3")) == (4, 8)
    assert left(SMALL.replace(', "attack-transfer"]', "]")) == (4, 8)
    far = '\n[[attacks]]\nname = "bim-fixed"\neps = 0.1\nrole = "strength"\n'
    assert left(SMALL + far) == (0, 8)
    # another boundary attack with 50 sources moves the noise level of deepfool, and attack-transfer gains a column
    near = '\n[[attacks]]\nname = "r-pgd"\nsources = 50\n'
    assert left(SMALL + near) == (2 * (1 + 2), 8)
    assert left(SMALL, tmp_path / "none.jsonl") == (0, 0)


def test_a_large_set_is_split_once(tmp_path: Path) -> None:
    text = changed(
        ('["non-transfer", "attack-transfer", "strength-transfer", "mixed"]', '["non-transfer"]'),
        ("share = 0.5", "share = 0.3"),
        ("sources = 70", "sources = 560"),
        ('name = "bim"\n[[attacks]]\n', ""),
        ('sources = 50\n[[attacks]]\nname = "bim-fixed"\neps = 0.2\nlabel = "strong"\nrole = "strength"\n', ""),
    )
    summary = run(tmp_path, text)
    assert summary.failures == ()
    outcomes = [record for record in read(summary.ledger) if isinstance(record, Outcome)]
    assert {record.folds for record in outcomes} == {1}
    assert all(record.cells[0].sources < 0.25 * record.fit_sources + 5 for record in outcomes)


class Deadly:
    """Attacks all chunks, runs the trials of one fit, and kills its own process while the next ones wait."""

    def run(
        self, function: Callable[[V, T], R], shared: Shared[V], tasks: Sequence[T]
    ) -> Iterator[tuple[T, R | TaskFailure]]:
        for task in tasks:
            yield task, function(shared.load(), task)
            if not isinstance(task, AttackChunk):
                os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_run_goes_on_and_ends_with_the_same_ledger(tmp_path: Path) -> None:
    file = plan_in(tmp_path, SMALL)
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    evaluate(read_plan(file), whole, show_progress=False)
    command = (
        "from tests.evaluation.test_run import *;"
        f"evaluate(read_plan({str(file)!r}), {str(cut)!r}, executor=Deadly(), show_progress=False)"
    )
    # a cache of its own, so that everything is made again
    environment = {**os.environ, "BENFOURIER_CACHE": str(tmp_path / "cache")}
    killed = subprocess.run([sys.executable, "-c", command], cwd=ROOT, env=environment)  # noqa: S603
    assert killed.returncode == -signal.SIGKILL
    assert sum(line["record"] == "outcome" for line in lines(cut)) == 2
    with cut.open("ab") as file_of_it:
        file_of_it.write(b'{"record": "outc')  # what a kill in the midst of a line leaves
    summary = evaluate(read_plan(file), cut, cache=tmp_path / "cache", show_progress=False).summary
    assert summary.outcomes == 6
    assert lines(cut) == lines(whole)


def test_the_verb_runs_a_plan_and_reports_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = plan_in(tmp_path, SMALL + BROKEN)
    dry = call(capsys, "evaluate", file, "--dry-run", "--json")
    assert dry.code == 0
    assert (dry.json["trials"], len(dry.json["outcomes"]), dry.json["left_behind"]) == (12, 12, 0)
    assert not (tmp_path / "tiny.jsonl").exists()
    result = call(capsys, "evaluate", file, "--only", "non-transfer", "--json")
    assert result.code == 6
    assert (result.json["trials"], result.json["outcomes"], len(result.json["failures"])) == (6, 4, 2)
    assert result.json["ledger"] == str(tmp_path / "tiny.jsonl")
    plain = call(capsys, "evaluate", file, "--only", "non-transfer")
    assert "2 of 6 trials run, 4 were done before" in plain.out
    assert "failed: broken fitted to bim, non-transfer: InputError" in plain.err


def test_the_verb_refuses_a_bad_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = call(capsys, "evaluate", plan_in(tmp_path, PLAN.replace("eps = 0.2", "eps = 0")))
    assert result.code == 2
    assert "attacks[2].eps is 0; it must be a number above 0" in result.err
    unknown = plan_in(tmp_path, PLAN + '\n[[detectors]]\nname = "mbf"\nlabel = "few"\nlayers = ["nowhere"]\n')
    dry = call(capsys, "evaluate", unknown, "--dry-run")
    assert (dry.code, "layers of detector 'few': layer 'nowhere' not found" in dry.err) == (2, True)
    empty = call(capsys, "evaluate", plan_in(tmp_path, changed(('source = "digits"', 'source = ""'))))
    assert (empty.code, "data.source is empty" in empty.err) == (2, True)
    other = call(capsys, "evaluate", plan_in(tmp_path), "--only", "mixd")
    assert (other.code, "did you mean 'mixed'?" in other.err) == (2, True)
