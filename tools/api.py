"""docs/api.md from the docstrings of the public names: `python -m tools.api`, or `--check` to compare only."""

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import benfourier as bf

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
HEAD = """# API reference

The public names of `benfourier`, as their docstrings have them; `python -m tools.api` writes this page. Higher scores
are always more adversarial, images are floating tensors (N, C, H, W) within the classifier's bounds, and every error is
a `BenfourierError`.
"""
SECTION = re.compile(r"(Args|Attributes|Returns|Raises):")
ENTRY = re.compile(r"    (\*{0,2}\w+): (.*)")
FIELD = re.compile(r"    (\w+): .*?  # (?!noqa|type:)(.*)")  # a field of a record with the comment beside it
NOISE = (
    (re.compile(r"numpy\.ndarray\[tuple\[typing\.Any, \.\.\.\], numpy\.dtype\[(?:numpy\.)?(\w+)\]\]"), r"NDArray[\1]"),
    (re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])"), ""),  # modules of types
    (re.compile(r"<class '|'>"), ""),
)


def main() -> int:
    """Returns the exit code: 1 if --check finds another page."""
    parser = argparse.ArgumentParser(prog="python -m tools.api", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, only compare")
    options = parser.parse_args()
    fresh = page()
    if options.check:
        return int(fresh != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


def page() -> str:
    """Returns the whole page."""
    named = [(name, getattr(bf, name)) for name in bf.__all__]
    ordered = sorted(named, key=lambda pair: (inspect.isclass(pair[1]), pair[0].lower()))
    contents = ", ".join(f"[`{name}`](#{name.lower()})" for name, _ in ordered)
    parts = [HEAD, contents + "\n", *(_of(name, thing) for name, thing in ordered)]
    return "\n".join(parts)


def _of(name: str, thing: Any) -> str:
    """One public name, with the public methods of a class."""
    lines = [f"## {name}", "", f"```text\n{name}{_signature(thing)}\n```", "", *_doc_lines(thing)]
    if inspect.isclass(thing) and is_dataclass(thing):
        names = {each.name for each in fields(thing) if not each.name.startswith("_")}
        matches = [FIELD.fullmatch(line) for line in inspect.getsource(thing).splitlines()]
        described = [f"- `{match[1]}`: {match[2]}" for match in matches if match and match[1] in names]
        lines += ["", "**Fields**", "", *described] if described else []
    if inspect.isclass(thing) and not issubclass(thing, Exception):
        for own, part in _methods(thing):
            lines += ["", f"### {name}.{own}", "", f"```text\n{own}{_signature(part)}\n```", "", *_doc_lines(part)]
    return "\n".join(lines) + "\n"


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties with a docstring of their own, in the order of the code."""
    for owner in reversed(kind.__mro__[:-1]):
        for name, part in vars(owner).items():
            plain = part.__func__ if isinstance(part, classmethod | staticmethod) else part
            known = inspect.isfunction(plain) or isinstance(plain, property)
            inherited = owner is not kind and name in vars(kind)
            if known and not name.startswith("_") and plain.__doc__ and not inherited:
                yield name, plain


def _signature(thing: Any) -> str:
    """The parameters, one per line if they are many; nothing for a property."""
    if isinstance(thing, property):
        return ""
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return ""
    if inspect.isclass(thing):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    text = _short(str(signature)).replace("self, ", "").replace("(self)", "()").replace("(cls, ", "(")
    if len(text) < 90:
        return text
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    star = next((i for i, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY), None)
    words = [_short(str(p)) for p in parameters]
    if star is not None and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        words.insert(star, "*")
    end = "" if signature.return_annotation is signature.empty else _short(str(signature)).rpartition(")")[2]
    return "(\n    " + ",\n    ".join(words) + ",\n)" + end


def _short(text: str) -> str:
    """A signature without the modules of its types."""
    for pattern, instead in NOISE:
        text = pattern.sub(instead, text)
    return text


def _doc_lines(thing: Any) -> Iterator[str]:
    """A docstring as Markdown: sections become lists."""
    in_list = False
    for line in (inspect.getdoc(thing) or "").splitlines():
        section, entry = SECTION.fullmatch(line.strip()), ENTRY.fullmatch(line)
        if section:
            in_list = True
            yield f"**{section[1]}**"
            yield ""
        elif in_list and entry:
            yield f"- `{entry[1]}`: {entry[2]}"
        elif in_list and line.startswith("        "):
            yield f"  {line.strip()}"
        else:
            yield line


if __name__ == "__main__":
    sys.exit(main())
