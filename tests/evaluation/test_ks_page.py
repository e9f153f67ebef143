import doctest
import re
from pathlib import Path
from typing import Any

from benfourier.store.vocabulary import KS_PAIRS

PAGE = Path(__file__).parents[2] / "docs" / "ks.md"


def test_the_code_on_the_ks_page_prints_what_the_page_shows() -> None:
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", str(PAGE), 0)
        assert runner.run(test, clear_globs=False).failed == 0
        names.update(test.globs)
    assert runner.tries > 10


def test_the_ks_page_names_every_pair() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [f"| `{study}` | {one}, {other} |" for study, (one, other) in KS_PAIRS.items()]
    assert [row for row in rows if row not in page] == []
