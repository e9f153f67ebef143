"""Notes of experiments/notes.toml: what no ledger can tell, and the cells that each note speaks of."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benfourier.errors import StoreError
from benfourier.report.paper import DATABASES, NONE

Place = Mapping[str, str]  # of a cell: table, database, metric, detector and so on, by name
KEYS = {
    "lacking": frozenset("table database metric detector fitted attack split kind effort rate why".split()),
    "difference": frozenset("experiment table metric detector method fitted attack rate why".split()),
}


@dataclass(frozen=True)
class Note:
    """A reason, and the cells that it is the reason for."""

    name: str  # where it stands in the file
    # by property of a cell: the values that it covers; properties that are not named are covered
    where: Mapping[str, tuple[str, ...]]
    why: str  # the reason, as Markdown

    def covers(self, place: Place) -> bool:
        """True if it speaks of that cell."""
        return all(place.get(key) in values for key, values in self.where.items())


@dataclass(frozen=True)
class Notes:
    """What was written by hand."""

    experiments: Mapping[str, Mapping[str, str]]  # by experiment: paper (the database beside it), about and short
    lacking: tuple[Note, ...]  # why cells of the paper have no counterpart here
    difference: tuple[Note, ...]  # why numbers differ by more than two points


def read_notes(path: Path) -> Notes:
    """Returns the notes in a TOML file; none if there is no file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path.name}: it is no TOML ({error}); correct it") from error
    _check_keys(path.name, content, {"experiments", *KEYS})
    experiments: dict[str, dict[str, str]] = content.get("experiments", {})
    for name, facts in experiments.items():
        _check_keys(f"{path.name}: experiments.{name}", facts, {"paper", "about", "short"})
        if facts.get("paper", NONE) not in (*DATABASES, NONE):
            allowed = ", ".join((*DATABASES, NONE))
            raise StoreError(f"{path.name}: experiments.{name}.paper is {facts['paper']!r}; allowed: {allowed}")
    lacking, difference = (
        tuple(_note(f"{path.name}: {kind}[{place}]", part, keys) for place, part in enumerate(content.get(kind, [])))
        for kind, keys in KEYS.items()
    )
    return Notes(experiments, lacking, difference)


def _note(name: str, part: Mapping[str, Any], keys: frozenset[str]) -> Note:
    _check_keys(name, part, keys)
    if not isinstance(part.get("why"), str) or not part["why"].strip():
        raise StoreError(f'{name} has no reason; say it with why = "…"')
    where = {key: (value,) if isinstance(value, str) else tuple(value) for key, value in part.items() if key != "why"}
    return Note(name, where, " ".join(part["why"].split()))


def _check_keys(name: str, part: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in part:
        if key not in keys:
            raise StoreError(f"{name} has {key!r}; allowed: {', '.join(sorted(keys))}")


def closest(notes: Iterable[Note], place: Place) -> Note | None:
    """Returns the note that names most about a cell, of equal ones the first; None if none speaks of it."""
    return max((note for note in notes if note.covers(place)), key=lambda note: len(note.where), default=None)


def check_notes(notes: Iterable[Note], places: Sequence[Place], kind: str) -> None:
    """Raises StoreError if a note covers none of these cells."""
    for note in notes:
        if not any(note.covers(place) for place in places):
            where = ", ".join(f"{key} = {' or '.join(values)}" for key, values in note.where.items())
            raise StoreError(f"{note.name} ({where}) points to no {kind}; remove it, or correct its keys")
