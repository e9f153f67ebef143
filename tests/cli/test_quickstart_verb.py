"""`quickstart`, with a plan that takes seconds."""

from dataclasses import replace
from pathlib import Path

import pytest

import benfourier as bf
from benfourier.evaluation.plan_file import read_plan
from tests.cli.calling import call
from tests.evaluation.tiny import PLAN, plan_in

OWN = Path(__file__).parents[2] / "src" / "benfourier" / "cli" / "quickstart.toml"
LEDGER = Path(__file__).parents[2] / "experiments" / "results" / "quickstart.jsonl"
Capture = pytest.CaptureFixture[str]


def test_everything_is_computed_printed_and_stored(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENFOURIER_CACHE", str(tmp_path / "cache"))
    text = PLAN.replace('protocols = ["non-transfer", "attack-transfer", "strength-transfer", "mixed"]', "")
    words = ("quickstart", "--out", tmp_path / "out", "--plan", plan_in(tmp_path, text), "--workers", "1")
    result = call(capsys, *words)
    assert result.code == 0, result.err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"quickstart.jsonl", "quickstart.toml", "report.html", "guard.bf", "network.safetensors", "images"} <= names
    assert "worst of all" in result.out
    assert len(result.out.splitlines()) + len(result.err.splitlines()) <= 60
    stages = ["training, attacking and fitting", "writing the report", "fitting a guard"]
    assert [line.startswith(stage) for line, stage in zip(result.err.splitlines(), stages, strict=True)] == [True] * 3
    verdicts = [line for line in result.out.splitlines() if ".png: " in line]
    assert len(verdicts) == 6
    guard = (tmp_path / "out" / "guard.bf").stat().st_mtime_ns
    ledger = (tmp_path / "out" / "quickstart.jsonl").read_text(encoding="utf-8").count('"record": "outcome"')
    again = call(capsys, *words)
    assert again.code == 0
    assert [line for line in again.out.splitlines() if ".png: " in line] == verdicts
    assert (tmp_path / "out" / "guard.bf").stat().st_mtime_ns == guard
    after = (tmp_path / "out" / "quickstart.jsonl").read_text(encoding="utf-8").count('"record": "outcome"')
    assert after == ledger > 0
    machine = call(capsys, *words, "--json")
    assert machine.code == 0
    assert {f"{image['file']}: {image['reason'] or 'accepted'}" for image in machine.json["images"]} == {
        line.split(", label")[0] for line in verdicts
    }
    assert machine.json["page"].endswith("report.html")
    asked = result.out.split("ask it yourself: benfourier ")[1].splitlines()[0]
    detected = call(capsys, *asked.split())
    assert [line.split(", score")[0] for line in detected.out.splitlines()] == [
        line.split(", score")[0] for line in sorted(verdicts)
    ]


def test_its_own_plan_has_every_detector_and_enough_images() -> None:
    plan = read_plan(OWN)
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


def test_the_summary_of_its_own_plan_leaves_room_for_an_hour_of_progress_lines(capsys: Capture) -> None:
    short = bf.read_report(LEDGER, audience="terminal")
    bf.print_report(replace(short, sections=short.sections[:1]), compact=True)
    summary = len(capsys.readouterr().out.splitlines())
    verdicts, stages, lines_in_an_hour = 11, 3, 25
    assert summary + verdicts + stages + lines_in_an_hour <= 60
