"""docs/results.md, the pages below it, figures and the README's headline: `python -m tools.results [--check]`."""

import argparse
import sys
from pathlib import Path

from benfourier.errors import BenfourierError
from tools.results.headline import in_readme
from tools.results.page import Written, written

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 1 if --check finds other texts than the ledgers give, 4 if a ledger or note is bad."""
    parser = argparse.ArgumentParser(prog="python -m tools.results", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, only compare the texts")
    parser.add_argument("--root", type=Path, default=ROOT, help="another folder than the project's")
    options = parser.parse_args(arguments)
    root: Path = options.root
    try:
        fresh = written(root / "experiments" / "results", root / "experiments" / "notes.toml")
    except BenfourierError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 4
    if options.check:
        return int(not up_to_date(root, fresh))
    _write(root, fresh)
    return 0


def up_to_date(root: Path, fresh: Written) -> bool:
    """Returns True if pages and README say what the ledgers say, and the figures are there, and no others."""
    docs, readme = root / "docs", (root / "README.md").read_text(encoding="utf-8")
    figures = {path.name for path in (docs / "figures").glob("results-*.svg")}
    found = [docs / "results.md", *(docs / "results").glob("*.md")]
    told = {path: path.read_text(encoding="utf-8") for path in found if path.is_file()}
    same = told == _pages(docs, fresh)
    return same and in_readme(readme, fresh.headline) == readme and figures == fresh.figures.keys()


def _pages(docs: Path, fresh: Written) -> dict[Path, str]:
    return {docs / "results.md": fresh.page, **{docs / "results" / name: text for name, text in fresh.pages.items()}}


def _write(root: Path, fresh: Written) -> None:
    readme, docs, figures = root / "README.md", root / "docs", root / "docs" / "figures"
    readme.write_text(in_readme(readme.read_text(encoding="utf-8"), fresh.headline), encoding="utf-8")
    for old in (*figures.glob("results-*.svg"), *(docs / "results").glob("*.md")):
        old.unlink()
    for path, text in _pages(docs, fresh).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name, content in fresh.figures.items():
        figures.mkdir(exist_ok=True)
        (figures / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
