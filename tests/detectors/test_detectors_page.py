import re
from dataclasses import fields
from pathlib import Path

import pytest

from benfourier.detectors import catalogue  # noqa: F401  registers the detectors
from benfourier.detectors.features import SOURCES
from benfourier.detectors.heads import COSTS, WIDTHS
from benfourier.detectors.method import DETECTORS, Method

PAGE = (Path(__file__).parents[2] / "docs" / "detectors.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([\w -]+)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", list(DETECTORS))
def test_the_detectors_page_names_every_option_with_its_default(name: str) -> None:
    shared = {field.name for field in fields(Method)}
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", SECTIONS[name], flags=re.MULTILINE))
    expected = {
        field.name: repr(field.default).replace("'", '"')
        for field in fields(DETECTORS[name])
        if field.name not in shared
    }
    assert rows == expected


def test_the_detectors_page_names_every_option_that_all_share() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", SECTIONS["What all share"], flags=re.MULTILINE))
    assert rows == {field.name: repr(field.default).replace("'", '"') for field in fields(Method)}


def test_the_detectors_page_lists_what_cross_validation_chooses_from() -> None:
    section = SECTIONS["What all share"]
    costs, widths = ([f"{value:g}" for value in values] for values in (COSTS, WIDTHS))
    assert f"chooses among {', '.join(costs[:-1])} and {costs[-1]} |" in section
    assert f"chooses among {', '.join(widths[:-1])} and {widths[-1]} times that" in section
    assert f"at most {SOURCES} sources" in section
