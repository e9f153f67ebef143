"""Generated text in the documentation: `python -m tools.docs [--check]`.

Whole pages, and blocks between `<!-- name -->` and `<!-- /name -->`, each by the renderer of its name.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import case
from benfourier.errors import BenfourierError
from tools import entries, results, strengths

ROOT = Path(__file__).parents[1]
Renderer = Callable[[Path, results.Project], str]
PAGES: Mapping[str, Renderer] = {
    "docs/results.md": lambda _, project: results.page(project),
    "docs/strengths.md": lambda root, _: strengths.page(strengths.load(root)),
}
BLOCKS: Mapping[str, Mapping[str, Renderer]] = {
    "README.md": {
        "picture": lambda root, _: strengths.picture(strengths.load(root)),
        "attacks": lambda root, _: strengths.attack_table(strengths.load(root)),
        "headline": lambda root, _: strengths.headline(strengths.load(root)),
        "alarms": lambda root, _: strengths.alarms(strengths.load(root)),
    },
    "docs/cluster.md": {"scaling": lambda *_: _measured(case.SCALING)},
    "docs/features.md": {"entries": lambda root, _: entries.table(root)},
    "docs/speed.md": {"bench": lambda *_: _measured(case.RESULTS)},
}
FIGURES = "docs/figures"
README_FIGURE = strengths.FIGURE


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 1 if --check finds an outdated text, 4 if a ledger or note is bad."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, name what is outdated")
    parser.add_argument("--root", type=Path, default=ROOT, help="another folder than the project's")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            stale = outdated(options.root, results.load(options.root))
            print("\n".join(stale), end="\n" if stale else "")  # noqa: T201
            return int(bool(stale))
        write(options.root, results.load(options.root))
    except BenfourierError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 4
    return 0


def outdated(root: Path, project: results.Project) -> list[str]:
    """Returns the files that say something else than the ledgers, and figures that are missing or that none makes.

    The content of figures is not compared: it changes with the version of matplotlib.
    """
    texts = render(root, project)
    pages = [name for name, text in texts.items() if not (root / name).is_file() or _read(root / name) != text]
    names = {name for experiment in project.experiments for name in experiment.figures}
    figures = {path.name for path in (root / FIGURES).glob("results-*.svg")}
    missing = [] if (root / README_FIGURE).is_file() or not strengths.figure(strengths.load(root)) else [README_FIGURE]
    return [*pages, *(f"{FIGURES}/{name}" for name in sorted(figures ^ names)), *missing]


def write(root: Path, project: results.Project) -> None:
    """Writes all pages, blocks and figures."""
    for name, text in render(root, project).items():
        (root / name).write_text(text, encoding="utf-8")
    for old in (root / FIGURES).glob("results-*.svg"):
        old.unlink()
    drawn = {f"{FIGURES}/{name}": content for name, content in results.figures(project).items()}
    for name, content in (drawn | {README_FIGURE: strengths.figure(strengths.load(root))}).items():
        if content:
            (root / FIGURES).mkdir(exist_ok=True)
            (root / name).write_text(content, encoding="utf-8")


def render(root: Path, project: results.Project) -> dict[str, str]:
    """Returns the text of every page that has generated parts, by its name."""
    texts = {name: make(root, project) for name, make in PAGES.items()}
    for name, blocks in BLOCKS.items():
        if not (root / name).is_file():
            continue
        text = _read(root / name)
        for block, make in blocks.items():
            text = fill(text, block, make(root, project)) if f"<!-- {block} -->" in text else text
        texts[name] = text
    return texts


def fill(page: str, name: str, text: str) -> str:
    """Returns a page with the text between the markers of that name.

    Raises:
        ValueError: if the page does not have exactly one such block.
    """
    block = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- /{re.escape(name)} -->)", re.DOTALL)
    filled, count = block.subn(lambda match: match[1] + text + match[2], page)
    if count != 1:
        raise ValueError(f"the page has {count} blocks between <!-- {name} --> and <!-- /{name} -->; it must have one")
    return filled


def _measured(results: Path) -> str:
    """The table of a file of benchmarks."""
    return case.table(*case.load(results)) if results.is_file() else "Not measured yet for this version.\n"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
