"""The tutorial, from a folder of images to a guard, with the commands of its page."""

import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benfourier.data.formats import embedded
from tests.cli.calling import call

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = [line for line in PAGE.splitlines() if line.startswith("benfourier ")]
CODE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.fixture(name="here")
def folders_of_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    source = embedded("digits")
    pixels = source.pixels(np.arange(len(source)))
    for row, (image, label) in enumerate(zip(pixels, source.labels, strict=True)):
        part = "learn" if row < 1300 else f"guard/{NAMES[label]}" if row < 1780 else "new"
        folder = tmp_path / "photos" / (f"learn/{NAMES[label]}" if part == "learn" else part)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0]).save(folder / f"{row - 1780 if part == 'new' else row}.png")
    (tmp_path / "my_network.py").write_text(CODE[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("BENFOURIER_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_there_are_five_commands() -> None:
    assert [command.split()[1] for command in COMMANDS] == ["layers", "train", "attack", "fit", "detect"]


def test_the_five_commands_lead_from_a_folder_to_a_guard(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS[:-1]:
        result = call(capsys, *shlex.split(command)[1:])
        assert result.code == 0, result.err
    result = call(capsys, *shlex.split(COMMANDS[-1])[1:])
    assert result.code in (0, 1)
    lines = result.out.splitlines()
    assert len(lines) == len(list((here / "photos" / "new").iterdir()))
    assert sum(": accepted, label " in line for line in lines) >= len(lines) / 2  # all of them are clean
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(_script(here)))
    name, accepted = capsys.readouterr().out.split()
    first = next(line for line in lines if line.startswith("photos/new/0.png: "))
    assert f"({name})" in first
    assert (": accepted, " in first) == (accepted == "True")


def _script(here: Path) -> Path:
    (here / "use.py").write_text(CODE[1], encoding="utf-8")
    return here / "use.py"
