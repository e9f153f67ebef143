import doctest
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

import benfourier as bf
from benfourier.attacks.attack import ATTACKS
from benfourier.attacks.catalogue import attack_ids

PAGE = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text(encoding="utf-8")


def test_the_code_on_the_attacks_page_prints_what_the_page_shows() -> None:
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner()
    with torch.random.fork_rng(devices=[]):
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)):
            test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", "attacks.md", 0)
            assert runner.run(test, clear_globs=False).failed == 0
            names.update(test.globs)
    assert runner.tries > 10


def test_the_attacks_page_names_every_attack_and_option() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*)$", PAGE.split("## Against")[0], flags=re.MULTILINE))
    missing = [
        f"{name} {field.name}"
        for name in attack_ids()
        for field in fields(ATTACKS[name])
        if f"`{field.name}=" not in rows[name]
    ]
    assert missing == []


def test_the_attacks_page_names_every_field_of_a_result() -> None:
    assert [field.name for field in fields(bf.AttackResult) if f"`{field.name}`" not in PAGE] == []
