"""Folders as the project's own, with ledgers of drawn numbers."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from benfourier.store.ledger import write
from benfourier.store.records import Record

NAMES = ("picture", "attacks", "headline", "alarms", "results")
README = "\n\n".join(["before", *(f"<!-- {name} -->\n<!-- /{name} -->" for name in NAMES), "after\n"])


def root(folder: Path, strengths: Mapping[str, Iterable[Record]] | None = None, **ledgers: Iterable[Record]) -> Path:
    """A folder with a README, empty docs and these ledgers; `strengths` are those of fits to the default mixture."""
    (folder / "docs").mkdir(parents=True)
    (folder / "experiments" / "results").mkdir(parents=True)
    (folder / "README.md").write_text(README, encoding="utf-8")
    for name, records in ledgers.items():
        write(folder / "experiments" / "results" / f"{name}.jsonl", records)
    (folder / "experiments" / "strengths" / "results").mkdir(parents=True)
    for name, records in (strengths or {}).items():
        write(folder / "experiments" / "strengths" / "results" / f"{name}.jsonl", records)
    return folder


def with_notes(folder: Path, text: str) -> Path:
    """The folder with notes."""
    (folder / "experiments" / "notes.toml").write_text(text, encoding="utf-8")
    return folder


def page(folder: Path) -> str:
    return (folder / "docs" / "results.md").read_text(encoding="utf-8")
