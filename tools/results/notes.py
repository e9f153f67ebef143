"""What was written by hand: why numbers of the paper have no like here, and why some of ours lie far from them."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benfourier.errors import StoreError
from benfourier.report.paper import DATABASES, NONE

Place = Mapping[str, str]
LACKING = frozenset("table database metric detector fitted attack split kind effort rate".split())
DIFFERENCE = frozenset("experiment table metric detector method fitted attack rate".split())


@dataclass(frozen=True)
class Note:
    """A reason, and the cells that it is the reason for.

    Args:
        name: where it stands in the file.
        where: by property of a cell: the values that it covers; every property that is not named is covered.
        why: the reason, as Markdown.
    """

    name: str
    where: Mapping[str, tuple[str, ...]]
    why: str

    def covers(self, place: Place) -> bool:
        """True if it speaks of that cell."""
        return all(place.get(key) in values for key, values in self.where.items())


@dataclass(frozen=True)
class Notes:
    """All notes.

    Args:
        papers: by experiment: the paper's database beside it, where it is not to be guessed.
        about: by experiment: what must be known of it.
        short: by experiment: what it adds to the first lines of the page.
        lacking: why cells of the paper have no like here.
        difference: why numbers differ by more than two points.
    """

    papers: Mapping[str, str]
    about: Mapping[str, str]
    short: Mapping[str, str]
    lacking: tuple[Note, ...]
    difference: tuple[Note, ...]


def read_notes(path: Path) -> Notes:
    """Returns the notes in a TOML file; none if there is no file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path.name}: it is no TOML ({error}); correct it") from error
    _known(path.name, content, {"experiments", "lacking", "difference"})
    told: dict[str, dict[str, str]] = content.get("experiments", {})
    for name, facts in told.items():
        _known(f"{path.name}: experiments.{name}", facts, {"paper", "about", "short"})
        if facts.get("paper", NONE) not in (*DATABASES, NONE):
            allowed = ", ".join((*DATABASES, NONE))
            raise StoreError(f"{path.name}: experiments.{name}.paper is {facts['paper']!r}; allowed: {allowed}")
    papers, about, short = (
        {name: facts[key] for name, facts in told.items() if key in facts} for key in ("paper", "about", "short")
    )
    return Notes(
        papers,
        about,
        short,
        tuple(_note(path.name, "lacking", n, part, LACKING) for n, part in enumerate(content.get("lacking", []))),
        tuple(_note(path.name, "difference", n, p, DIFFERENCE) for n, p in enumerate(content.get("difference", []))),
    )


def closest(notes: Iterable[Note], place: Place) -> Note | None:
    """Returns the note that names most about a cell, of equal ones the first; None if none speaks of it."""
    found = [note for note in notes if note.covers(place)]
    return max(found, key=lambda note: len(note.where)) if found else None


def check(notes: Iterable[Note], places: Iterable[Place], what: str) -> None:
    """Raises StoreError if a note covers none of these cells."""
    known = list(places)
    for note in notes:
        if not any(note.covers(place) for place in known):
            told = ", ".join(f"{key} = {' or '.join(values)}" for key, values in note.where.items())
            raise StoreError(f"{note.name} ({told}) points to no {what}; remove it, or correct its keys")


def check_experiments(notes: Notes, names: Iterable[str]) -> None:
    """Raises StoreError if notes speak of an experiment that is not there."""
    known = list(names)
    for name in (*notes.papers, *notes.about, *notes.short):
        if name not in known:
            raise StoreError(f"notes speak of the experiment {name!r}; there are: {', '.join(known) or 'none'}")


def _note(file: str, kind: str, number: int, part: Mapping[str, Any], keys: frozenset[str]) -> Note:
    name = f"{file}: {kind}[{number}]"
    _known(name, part, keys | {"why"})
    if not isinstance(part.get("why"), str) or not part["why"].strip():
        raise StoreError(f'{name} has no reason; say it with why = "…"')
    where = {key: (value,) if isinstance(value, str) else tuple(value) for key, value in part.items() if key != "why"}
    return Note(name, where, " ".join(part["why"].split()))


def _known(name: str, part: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in part:
        if key not in keys:
            raise StoreError(f"{name} has {key!r}; allowed: {', '.join(sorted(keys))}")
