import doctest
import re
import shlex
import sys
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

from benfourier.cli.main import main
from benfourier.models.image_formats import IMAGE_OPTIONS
from benfourier.models.training import TrainingOptions, train
from benfourier.models.zoo import ZOO, ZooEntry

PAGE = (Path(__file__).parents[2] / "docs" / "networks.md").read_text(encoding="utf-8")
SCALINGS: dict[tuple[tuple[float, ...], tuple[float, ...] | None], str] = {
    ((0.5,), None): "x − 0.5",
    ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)): "(x − mean) / std",
    ((127 / 255,), (128 / 255,)): "(255 x − 127) / 128",
}


@pytest.fixture(name="here")
def current_folder_with_the_pages_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (text,) = re.findall(r"```python\n# my_networks\.py\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "my_networks.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_networks", None)


def test_the_code_on_the_networks_page_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)):
            test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", "networks.md", 0)
            assert runner.run(test, clear_globs=False).failed == 0
            names.update(test.globs)
    assert runner.tries > 15


def test_the_commands_on_the_networks_page_work(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```\n(benfourier .*?)```", PAGE, flags=re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) == 4
    for command in commands:
        with pytest.raises(SystemExit) as exit_info:
            main(shlex.split(command)[1:])
        assert exit_info.value.code == 0, capsys.readouterr().err
    assert (here / "small.safetensors").is_file()


@pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO)
def test_the_table_of_the_zoo_agrees_with_the_zoo(entry: ZooEntry) -> None:
    rows = {
        cells[0]: cells[2:] for cells in re.findall(r"^\| `([\w-]+)` \|" + r" (.*?) \|" * 5 + "$", PAGE, re.MULTILINE)
    }
    free = ", or as asked for" if "classes" in signature(entry.factory).parameters else ""
    assert rows[entry.name] == (
        f"{entry.channels}×{entry.size}×{entry.size}",
        f"{entry.classes}{free}",
        SCALINGS[entry.scaling],
        "yes" if entry.flips else "no",
    )


def test_the_networks_page_names_every_keyword() -> None:
    assert [name for name in IMAGE_OPTIONS if f"`{name}=`" not in PAGE] == []


def test_the_recipe_on_the_page_is_the_one_in_the_code() -> None:
    assert f"Nesterov momentum {TrainingOptions().momentum}." in PAGE
    assert signature(train).parameters["held_out"].default == 0.1
    assert "a tenth of the data is held out" in PAGE
