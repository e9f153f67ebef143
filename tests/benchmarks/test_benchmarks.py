"""Every benchmark runs, and its results become a table."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import benfourier as bf
from benchmarks import kills, scaling
from benchmarks.case import Case, Environment, load, merge, save, table
from benchmarks.fidelity import Comparison, row
from benchmarks.service import noise_guard
from benchmarks.setup import NETWORKS
from benfourier.data.formats import embedded
from benfourier.store import artifact

ROOT = Path(__file__).parents[2]
CASE = Case("kernel", "a kernel: {slow_ms} → {fast_ms} ms", {"slow_ms": 10.0, "fast_ms": 0.1, "speed_up": 100.0},
            "speed_up", "factor", 50.0, "at least")  # fmt: skip
ENVIRONMENT = Environment("a processor", 2, "3.11", "2", "2", "0", "2000-01-01", 3)


@pytest.mark.parametrize("group", ["features/", "kernel", "memory/", "attacks/", "detectors/", "svm/", "service/"])
def test_every_case_runs(group: str, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", group, "--json", str(results)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)  # noqa: S603
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    cases = json.loads(results.read_text(encoding="utf-8"))["cases"]
    assert cases
    assert all(case["name"].startswith(group) for case in cases)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process holds")
def test_a_short_soak_loses_and_mixes_no_answer() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--seconds", "4"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603
    rows = [line.rsplit(None, 1) for line in ended.stdout.splitlines()]
    figures = {name: float(value.replace(",", "")) for name, value in rows}
    assert figures["2xx"] > 0, ended.stderr[-2000:]
    assert figures["4xx"] > 0
    for name in ("5xx", "no answer", "lost", "mixed", "broken, taken", "exit code", "faults in the log"):
        assert figures[name] == 0, name


def test_an_unknown_case_is_a_usage_error() -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "nothing"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603
    assert ended.returncode == 2
    assert "no case begins with 'nothing'; there are: features/alexnet" in ended.stderr


def test_results_become_rows_of_a_table() -> None:
    lines = table(ENVIRONMENT, [CASE]).splitlines()
    assert lines[2] == "| a kernel: 10 → 0.1 ms | 100× | at least 50× | yes |"
    assert lines[4].startswith("a processor, 2 threads")


def test_a_result_on_the_wrong_side_of_its_limit_is_marked() -> None:
    slow = Case(CASE.name, CASE.sentence, {**CASE.figures, "speed_up": 20.0}, "speed_up", "factor", 50.0, "at least")
    assert not slow.holds
    assert slow.row().endswith("| 20× | at least 50× | no |")


def test_new_results_take_the_place_of_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    other = Case("svm/fit", "a fit", {"auroc": 0.98}, "auroc", "number")
    save(path, ENVIRONMENT, [CASE, other])
    new = Case("kernel", CASE.sentence, {**CASE.figures, "speed_up": 70.0}, "speed_up", "factor", 50.0, "at least")
    assert merge(path, ENVIRONMENT, [new]) == [new, other]
    assert load(path) == (ENVIRONMENT, [CASE, other])


def test_results_of_another_machine_are_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    save(path, ENVIRONMENT, [CASE])
    elsewhere = Environment("another processor", 2, "3.11", "2", "2", "0", "2000-01-01", 3)
    with pytest.raises(ValueError, match="was measured elsewhere"):
        merge(path, elsewhere, [CASE])


def test_images_beside_foolboxs_are_counted_by_what_they_are() -> None:
    linear = nn.Linear(4, 2, bias=False).requires_grad_(False)
    linear.weight.copy_(torch.tensor([[0.0, 0, 0, 0], [1, 1, 1, 1]]))  # the other class leads by the sum of the pixels
    module = nn.Sequential(nn.Flatten(), linear)
    classifier = bf.Classifier(module, bounds=(-1.0, 1.0), size=2, channels=1)
    clean = torch.full((3, 1, 2, 2), -0.1)
    theirs = clean + torch.tensor([0.2, 0.15, 0.05]).view(-1, 1, 1, 1)  # far beyond, beyond, not across
    ours = clean + torch.tensor([0.2, 0.12, 0.11]).view(-1, 1, 1, 1)
    text = row(Comparison("bim", 3), classifier, clean, torch.zeros(3, dtype=torch.int64), ours, theirs)
    assert "| 3 / 3 of 3 | 1.0000 (0.8000..2.2000) |" in text
    assert text.endswith("| 1 | 2 / 1 | 1 / 0 |")


def test_files_of_two_runs_are_compared_without_their_dates(tmp_path: Path) -> None:
    manifests: list[dict[str, object]] = [{"date": "a", "k": 1}, {"date": "b", "k": 1}, {"date": "b", "k": 2}]
    for place, manifest in enumerate(manifests):
        artifact.write(tmp_path / str(place), "benfourier-cache", 1, manifest, {"x": np.zeros(2)})
    first, same, other = (kills.arrays(tmp_path / str(place)) for place in range(3))
    assert first == same != other


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_training_is_resumed_and_compared(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    digits = embedded("digits")
    np.savez(whole / "images.npz", x=digits.images[:200], y=digits.labels[:200])
    (whole / "plan.toml").touch()
    verb = kills.VERBS["train"]
    start = time.monotonic()
    assert kills.run(verb, whole).wait() == 0
    middle = 0.8 * (time.monotonic() - start)
    outcome = kills.disturb(verb, whole, tmp_path / "killed", middle, np.random.default_rng(0))
    assert outcome in ("killed 1 of 1 processes: equal", "ended before")


def test_each_free_worker_takes_the_next_task_and_the_last_one_bounds_a_schedule() -> None:
    tasks = [scaling.Job(name, seconds) for name, seconds in (("a", 4.0), ("b", 1.0), ("c", 2.0), ("d", 3.0))]
    assert scaling.makespan(tasks, 2) == (6.0, tasks[3])  # b and c, then d, beside a
    assert scaling.makespan(tasks, 100) == (4.0, tasks[0])
    assert scaling.makespan(tasks, 1)[0] == 10.0


def test_a_plan_is_played_through_with_the_costs_of_its_ledger() -> None:
    plan, ledger = ROOT / "experiments" / "cifar10.toml", ROOT / "experiments" / "results" / "cifar10.jsonl"
    chosen = bf.read_plan(plan, scale="paper", data_dir=Path("data"))
    attacks, fits = scaling.jobs(chosen, ledger)
    assert len(fits) == len({job.name for job in fits})
    assert all(job.seconds > 0 for job in attacks + fits)
    hours = [case.figures["hours"] for case in scaling.schedule_cases(plan, ledger, "paper", 32)]
    assert hours == sorted(hours, reverse=True)
    longest = max(job.seconds for job in fits) / 3600
    assert hours[-1] >= longest


def test_images_of_the_detect_benchmark_have_equal_scores_in_two_folders(tmp_path: Path) -> None:
    guard = noise_guard(NETWORKS["cifar-resnet20"])
    source = scaling.write_images(tmp_path / "images.parquet", guard, 20)
    watched = scaling.Watched(bf.Serial())
    bf.detect(guard, source, tmp_path / "a", executor=watched, chunk=5, show_progress=False)
    bf.detect(guard, source, tmp_path / "b", batch=4, show_progress=False)
    assert scaling.largest_difference(tmp_path / "a", tmp_path / "b") <= scaling.TOLERANCE
    assert watched.peak > 1e7
    watched.times[:] = [0.0, 1.0, 2.0, 3.0]
    assert watched.speed(20, 1) == 5.0
