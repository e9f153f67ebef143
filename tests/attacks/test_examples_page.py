import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import benfourier as bf

PAGE = (Path(__file__).parents[2] / "docs" / "examples.md").read_text(encoding="utf-8")


def test_the_code_on_the_examples_page_prints_what_the_page_shows() -> None:
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner()
    with torch.random.fork_rng(devices=[]):
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)):
            test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", "examples.md", 0)
            assert runner.run(test, clear_globs=False).failed == 0
            names.update(test.globs)
    assert runner.tries > 10


@pytest.mark.parametrize("word", ["attacks", "cache", "chunk", "eight_bit", "ids", "noise", "noise_from", "seed"])
def test_the_examples_page_names_the_options(word: str) -> None:
    assert word in inspect.signature(bf.make_examples).parameters
    assert f"`{word}=" in PAGE or f"`{word}`" in PAGE


def test_the_examples_page_names_the_default_chunk() -> None:
    default = inspect.signature(bf.make_examples).parameters["chunk"].default
    assert f"`chunk={default}`" in PAGE
