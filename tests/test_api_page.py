"""The API reference is what the docstrings say."""

import inspect

import benfourier as bf
from tools.api import PAGE, page


def test_the_page_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again with `python -m tools.api`"


def test_every_public_name_and_its_parameters_are_there() -> None:
    written = PAGE.read_text(encoding="utf-8")
    for name in bf.__all__:
        assert f"## {name}\n" in written
    for parameter in inspect.signature(bf.make_examples).parameters:
        assert f"- `{parameter}`: " in written
