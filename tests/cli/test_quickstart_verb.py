"""`quickstart`, with a plan that takes seconds; its own plan, and that of `make reproduce`."""

from dataclasses import replace
from pathlib import Path

import pytest

import benfourier as bf
from benfourier import progress
from benfourier.evaluation.plan_file import read_plan
from tests.cli.calling import call
from tests.evaluation.tiny import PLAN, plan_in

ROOT = Path(__file__).parents[2]
OWN = ROOT / "src" / "benfourier" / "cli" / "quickstart.toml"
REPRODUCTION = ROOT / "experiments" / "reproduce.toml"
LEDGER = ROOT / "experiments" / "results" / "reproduce.jsonl"
Capture = pytest.CaptureFixture[str]


def test_everything_is_computed_printed_and_stored(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BENFOURIER_CACHE", str(tmp_path / "cache"))
    text = PLAN.replace('protocols = ["non-transfer", "attack-transfer", "strength-transfer", "mixed"]', "")
    monkeypatch.setattr("benfourier.cli.quickstart.PLAN", str(plan_in(tmp_path, text)))
    monkeypatch.setattr("benfourier.cli.quickstart.BUDGET", 1)
    words = ("quickstart", "--workers", "1")
    result = call(capsys, *words)
    assert result.code == 0, result.err
    names = {path.name for path in (tmp_path / "quickstart").iterdir()}
    assert {"quickstart.jsonl", "report.html", "guard.bf", "network.safetensors", "images"} <= names
    lines = result.out.splitlines()
    assert lines[0].startswith("guard of Sequential (10 classes")
    assert "false alarms, 5.0% promised on clean images:" in lines
    assert " has the best worst case of " in result.out
    assert len(lines) <= 36  # leaves room for plain lines of two minutes, 40 in all
    command = next(line for line in lines if line.startswith("by hand: "))
    assert max(len(line) for line in lines if line != command) <= 120
    assert len(command.replace("tests.evaluation.tiny:network", "small-mnist")) <= 120
    verdicts = [line for line in lines if ".png: " in line]
    assert len(verdicts) == 4
    guard = (tmp_path / "quickstart" / "guard.bf").stat().st_mtime_ns
    ledger = (tmp_path / "quickstart" / "quickstart.jsonl").read_text(encoding="utf-8").count('"record": "outcome"')
    again = call(capsys, *words)
    assert (again.code, again.out) == (0, result.out)
    assert (tmp_path / "quickstart" / "guard.bf").stat().st_mtime_ns == guard
    after = (tmp_path / "quickstart" / "quickstart.jsonl").read_text(encoding="utf-8").count('"record": "outcome"')
    assert after == ledger > 0
    machine = call(capsys, *words, "--json")
    assert machine.code == 0
    assert {f"{image['file']}: {image['reason'] or 'accepted'}" for image in machine.json["images"]} == {
        line.split(", label")[0] for line in verdicts
    }
    assert machine.json["page"].endswith("report.html")
    assert machine.json["card"]["detector"] == "views"
    asked = result.out.split("by hand: benfourier ")[1].splitlines()[0]
    detected = call(capsys, *asked.split())
    assert [line.split(", score")[0] for line in detected.out.splitlines()] == [
        line.split(", score")[0] for line in sorted(verdicts)
    ]


def test_a_guard_that_an_interruption_has_prevented_is_made_by_the_next_run(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENFOURIER_CACHE", str(tmp_path / "cache"))
    text = PLAN.replace('protocols = ["non-transfer", "attack-transfer", "strength-transfer", "mixed"]', "")
    plan, out = plan_in(tmp_path, text), tmp_path / "out"
    monkeypatch.setattr("benfourier.cli.quickstart.PLAN", str(plan))
    monkeypatch.setattr("benfourier.cli.quickstart.BUDGET", 1)
    assert bf.evaluate(read_plan(plan), out / "quickstart.jsonl").summary.run > 0  # and then it was interrupted
    result = call(capsys, "quickstart", "--out", out, "--workers", "1")
    assert result.code == 0, result.err
    assert (out / "guard.bf").is_file()


def test_its_own_plan_tests_the_default_fit_under_attacks_of_every_kind() -> None:
    plan = read_plan(OWN)
    assert plan.protocols == ("mixture", "unseen")
    assert {entry.name for entry in plan.detectors} == {"max-softmax", "views", "mbf"}
    assert {attack.role for attack in plan.attacks} == {"boundary", "strength", "mixture", "unseen"}
    counts = {attack.sources for attack in plan.attacks} | {detector.sources for detector in plan.detectors}
    assert counts == {plan.sources}


def test_the_paper_in_small_has_every_detector_and_enough_images() -> None:
    plan = read_plan(REPRODUCTION)
    enough = {"bim": 300, "r-pgd": 300, "deepfool": 300, "cw-l2": 150}
    assert all(plan.attack(name).sources >= count for name, count in enough.items())
    assert (plan.attack("cw-l2").options["search_steps"], plan.attack("cw-l2").options["iterations"]) == (5, 1000)
    assert all(entry.sources >= 100 for entry in plan.detectors)
    expected = {"max-softmax", "views", "mbf", "mahalanobis", "lid", "kd-bu", "c1c2", "defense-gan"}
    assert {entry.name for entry in plan.detectors} == expected
    result = {entry.label for entry in plan.attacks if entry.reduced}
    result |= {entry.label for entry in plan.detectors if entry.reduced}
    assert result == {"cw-l2 confidence 5", "c1c2", "defense-gan"}


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = call(capsys, "quickstart", "--out", tmp_path / "file")
    assert result.code == 4
    assert "choose another with --out" in result.err


def test_the_paper_in_small_prints_60_lines_at_most_in_half_an_hour(capsys: Capture) -> None:
    short = bf.read_report(LEDGER, audience="terminal")
    bf.print_report(replace(short, sections=short.sections[:1]), compact=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    elapsed, progress_lines = progress.FIRST_SECONDS, 1
    while elapsed < 1800:
        elapsed += max(progress.LINE_SECONDS, progress.LINE_GROWTH * elapsed)
        progress_lines += 1
    evaluated, written = 1, 1
    assert len(lines) + progress_lines + evaluated + written <= 60
