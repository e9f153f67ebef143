"""`quickstart`, with a plan that takes seconds."""

from pathlib import Path

import pytest

from benfourier.evaluation.plan_reading import read_plan
from tests.cli.calling import call
from tests.evaluation.tiny import PLAN, plan_in

OWN = Path(__file__).parents[2] / "src" / "benfourier" / "cli" / "quickstart.toml"
Capture = pytest.CaptureFixture[str]


def test_everything_is_made_told_and_kept(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENFOURIER_CACHE", str(tmp_path / "cache"))
    text = PLAN.replace('protocols = ["non-transfer", "attack-transfer", "strength-transfer", "mixed"]', "")
    words = ("quickstart", "--out", tmp_path / "made", "--plan", plan_in(tmp_path, text), "--workers", "1")
    told = call(capsys, *words)
    assert told.code == 0, told.err
    made = {path.name for path in (tmp_path / "made").iterdir()}
    assert {"quickstart.jsonl", "quickstart.toml", "report.html", "guard.bf", "network.safetensors", "images"} <= made
    assert "In plain words" in told.out
    verdicts = [line for line in told.out.splitlines() if ".png: " in line]
    assert len(verdicts) == 6
    guard = (tmp_path / "made" / "guard.bf").stat().st_mtime_ns
    ledger = (tmp_path / "made" / "quickstart.jsonl").read_text(encoding="utf-8").count('"record": "outcome"')
    again = call(capsys, *words)
    assert again.code == 0
    assert [line for line in again.out.splitlines() if ".png: " in line] == verdicts
    assert (tmp_path / "made" / "guard.bf").stat().st_mtime_ns == guard
    after = (tmp_path / "made" / "quickstart.jsonl").read_text(encoding="utf-8").count('"record": "outcome"')
    assert after == ledger > 0
    machine = call(capsys, *words, "--json")
    assert machine.code == 0
    assert {
        f"{image['file']}: {'adversarial' if image['adversarial'] else 'accepted'}" for image in machine.json["images"]
    } == {line.split(", label")[0] for line in verdicts}
    assert machine.json["page"].endswith("report.html")
    asked = told.out.split("ask it yourself: benfourier ")[1].splitlines()[0]
    detected = call(capsys, *asked.split())
    assert [line.split(", score")[0] for line in detected.out.splitlines()] == [
        line.split(", score")[0] for line in sorted(verdicts)
    ]


def test_its_own_plan_is_no_toy() -> None:
    plan = read_plan(OWN)
    enough = {"bim": 300, "r-pgd": 300, "deepfool": 300, "cw-l2": 150}
    assert all(plan.attack(name).sources >= count for name, count in enough.items())
    assert (plan.attack("cw-l2").options["search_steps"], plan.attack("cw-l2").options["iterations"]) == (5, 1000)
    assert all(entry.sources >= 100 for entry in plan.detectors)
    wanted = {"max-softmax", "mbf", "mahalanobis", "lid", "kd-bu", "c1c2", "defense-gan"}
    assert {entry.name for entry in plan.detectors} == wanted
    told = {entry.label for entry in plan.attacks if entry.reduced}
    told |= {entry.label for entry in plan.detectors if entry.reduced}
    assert told == {"cw-l2 confidence 5", "c1c2", "defense-gan"}


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    told = call(capsys, "quickstart", "--out", tmp_path / "file")
    assert told.code == 4
    assert "choose another with --out" in told.err
