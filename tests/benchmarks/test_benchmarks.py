"""Every benchmark runs, and its results become a table."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.case import Case, Environment, load, merge, save, table

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
