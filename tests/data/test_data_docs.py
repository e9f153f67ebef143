import doctest
import re
from pathlib import Path
from typing import Any

import pytest

import benfourier.data

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_the_code_on_the_data_page_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", str(PAGE), 0)
        assert runner.run(test, clear_globs=False).failed == 0
        names.update(test.globs)
    assert runner.tries > 20


def test_the_data_page_names_everything_public() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in benfourier.data.__all__ if f"`{name}" not in page and f"{name}(" not in page] == []


def test_the_public_names_are_sorted_and_resolve() -> None:
    assert benfourier.data.__all__ == sorted(benfourier.data.__all__)
    assert all(hasattr(benfourier.data, name) for name in benfourier.data.__all__)
