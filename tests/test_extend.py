"""A detector, an attack, a metric and a figure are one file each: verbs, plans, files and reports then have them."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pytest

import benfourier as bf
from benfourier.attacks.attack import ATTACKS
from benfourier.detectors.method import DETECTORS
from benfourier.metrics.registry import CELL_METRICS
from benfourier.models.weights import save_weights
from benfourier.report.registry import figure
from benfourier.store.ledger import read
from benfourier.store.records import Outcome
from tests.attacks.trained import digits
from tests.cli.calling import call

DOCS = Path(__file__).parents[1] / "docs"
Capture = pytest.CaptureFixture[str]
Extend = Callable[[str, str], ModuleType]
PLAN = """
name = "small"
protocols = ["non-transfer"]

[network]
model = "tests.evaluation.tiny:network"
train = {{ epochs = 8, share = 0.5, shift = 0, batch = 64, bf16 = false }}

[data]
source = "digits"

[sizes]
sources = 50
calibration = 60

[[attacks]]
name = "{attack}"

[[detectors]]
name = "{detector}"
C = 1.0
gamma = "scale"
"""
METRIC = '''
"""The share of attacked images that score higher than their own clean image."""

from benfourier.metrics.bootstrap import Bootstrap
from benfourier.metrics.registry import cell_metric, rate_estimate
from benfourier.metrics.scores import TargetScores
from benfourier.store.records import Estimate


@cell_metric("above-clean", "Images that score above their clean image")
def above_clean(target: TargetScores, bootstrap: Bootstrap) -> Estimate:
    return rate_estimate(target.scores[2] > target.scores[0])
'''
FIGURE = '''
"""How many trials each detector has."""

from collections.abc import Iterator

from benfourier.report.registry import Axes, Figure, Palette, Panel, figure
from benfourier.report.results import Results


@figure("trials", section="costs")
def trials(results: Results) -> Iterator[Figure]:
    counts = [sum(outcome.detector == name for outcome in results.outcomes) for name in results.detectors]

    def draw(axes: Axes, palette: Palette) -> None:
        axes.bar(list(results.detectors), counts, color=palette.series[0])

    panel = Panel("Trials", "Bars, one per detector.", draw)
    yield Figure("trials", "Trials of each detector", "One bar per detector.", (panel,))
'''


@pytest.fixture(name="extend")
def import_from_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Extend]:
    """Writes and imports a module; afterwards it is forgotten, and so is all that it registered."""
    bf.catalogue()  # imports all of the package, which would else be forgotten too
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def extend(name: str, code: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        names.append(name)
        return importlib.import_module(name)

    registries = (ATTACKS._classes, DETECTORS._classes)
    with patch.dict(registries[0]), patch.dict(registries[1]), patch.dict(CELL_METRICS), patch.dict(figure):
        yield extend
    for name in names:
        sys.modules.pop(name, None)


def code_on(page: str, first_line: str) -> str:
    """The block of code on a page of the documentation that begins with some words."""
    text = (DOCS / page).read_text(encoding="utf-8")
    (code,) = re.findall(rf'```python\n("""{first_line}.*?)```', text, flags=re.DOTALL)
    return str(code)


def count_of_lines(code: str) -> int:
    return sum(bool(line.strip()) for line in code.splitlines())


def verb(capsys: Capture, *words: str | Path) -> str:
    """What a verb prints; it must succeed."""
    outcome = call(capsys, *words)
    assert outcome.code == 0, outcome.err
    return outcome.out


def model(folder: Path) -> tuple[str | Path, ...]:
    """The words that name the network of the tests and its weights, which are written to a folder."""
    save_weights(digits().classifier.module, folder / "w.safetensors")
    network = ("--model", "tests.attacks.trained:network", "--weights", folder / "w.safetensors")
    return (*network, "--size", "8", "--channels", "1")


def evaluated(capsys: Capture, folder: Path, attack: str = "bim", detector: str = "mbf") -> Path:
    """The ledger of a small plan, run in this process: other processes do not know the module."""
    plan, ledger = folder / "small.toml", folder / "small.jsonl"
    plan.write_text(PLAN.format(attack=attack, detector=detector), encoding="utf-8")
    verb(capsys, "evaluate", plan, "--ledger", ledger, "--workers", "1")
    return ledger


def outcome_of(ledger: Path, detector: str) -> Outcome:
    (outcome,) = [each for each in read(ledger) if isinstance(each, Outcome) and each.detector == detector]
    return outcome


def test_a_detector_is_one_file_of_less_than_forty_lines(tmp_path: Path, capsys: Capture, extend: Extend) -> None:
    code = code_on("new_detector.md", "The largest logits")
    assert count_of_lines(code) < 40
    extend("top_two", code)
    assert "top-two" in bf.catalogue()
    network, examples, file = model(tmp_path), tmp_path / "examples.bf", tmp_path / "guard.bf"
    verb(capsys, "attack", *network, "--data", "digits", "--limit", "150", "--attack", "bim-fixed", "--out", examples)
    options = ("--option", "top=3", "--option", "C=1", "--option", "gamma=scale", "--false-alarm-rate", "0.1")
    printed = verb(capsys, "fit", *network, "--examples", examples, "--detector", "top-two", *options, "--out", file)
    assert "top-two fitted to" in printed
    data = digits()
    guard = bf.load_guard(file, data.classifier.module)
    assert guard.detector.method.as_dict()["top"] == 3
    guard.detector.save(tmp_path / "detector.bf")
    again = bf.load(tmp_path / "detector.bf", data.classifier)
    np.testing.assert_array_equal(again.score(data.images), guard.detector.score(data.images))
    ledger = evaluated(capsys, tmp_path, detector="top-two")
    assert outcome_of(ledger, "top-two").cells[0].metrics["auroc"].value > 0.7  # of images at the boundary
    assert "top-two" in verb(capsys, "report", ledger)


def test_a_plan_knows_what_the_module_of_the_network_registers_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "top_two.py").write_text(code_on("new_detector.md", "The largest logits"), encoding="utf-8")
    (tmp_path / "fgsm.py").write_text(code_on("attacks.md", "FGSM "), encoding="utf-8")
    network = "import fgsm, top_two\nfrom tests.evaluation.tiny import network\n"
    (tmp_path / "my_model.py").write_text(network, encoding="utf-8")
    plan = PLAN.format(attack="fgsm", detector="top-two").replace("tests.evaluation.tiny:", "my_model:")
    (tmp_path / "small.toml").write_text(plan, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "BENFOURIER_CACHE": str(tmp_path / "cache")}
    verb = [sys.executable, "-c", "from benfourier.cli.main import main; main()", "evaluate", "small.toml"]
    subprocess.run([*verb, "--workers", "2"], cwd=tmp_path, env=environment, check=True, timeout=300)  # noqa: S603
    assert outcome_of(tmp_path / "small.jsonl", "top-two").cells[0].attack == "fgsm"


def test_an_attack_is_one_file(tmp_path: Path, capsys: Capture, extend: Extend) -> None:
    extend("fgsm", code_on("attacks.md", "FGSM "))
    assert "fgsm" in bf.catalogue()
    words = ("--data", "digits", "--limit", "40", "--attack", "fgsm", "--option", "fgsm.tries=20", "--no-cache")
    assert "fgsm" in verb(capsys, "attack", *model(tmp_path), *words, "--out", tmp_path / "examples.bf")
    examples = bf.Examples.load(tmp_path / "examples.bf")
    assert examples.options["attacks"]["fgsm"] == {"attack": "fgsm", "options": {"eps": 0.3, "tries": 20}}
    assert examples.success["fgsm"].any()
    ledger = evaluated(capsys, tmp_path, attack="fgsm")
    assert outcome_of(ledger, "mbf").cells[0].attack == "fgsm"
    assert "fgsm" in verb(capsys, "report", ledger)


def test_a_metric_is_one_function(tmp_path: Path, capsys: Capture, extend: Extend) -> None:
    extend("above_clean", METRIC)
    ledger = evaluated(capsys, tmp_path)
    estimate = outcome_of(ledger, "mbf").cells[0].metrics["above-clean"]
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert "Images that score above their clean image" in verb(capsys, "report", ledger, "--json")


def test_a_figure_is_one_function(tmp_path: Path, capsys: Capture, extend: Extend) -> None:
    extend("trials", FIGURE)
    ledger = evaluated(capsys, tmp_path)
    verb(capsys, "report", ledger, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Trials of each detector" in page
    assert "Bars, one per detector." in page
