"""Tables as data: what is shown, before anyone decides how."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from benfourier.report.paper import Printed

BEST, BELOW, FEW, MISSING, TRIVIAL = "best", "below", "few", "missing", "trivial"
NOTHING = "–"
LONG = 40  # rows; a longer table is folded away
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Entry:
    """One place in a table.

    Args:
        text: what is shown.
        value: the number behind it, in the unit of the text; None if there is none.
        low: lower end of its interval.
        high: upper end.
        paper: the paper's number.
        emphasis: best, below (the trivial baseline), few (too few successes), missing, or nothing.
    """

    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    paper: Printed | None = None
    emphasis: str = ""

    @property
    def interval(self) -> str:
        """The interval as words, or nothing."""
        return "" if self.low is None or self.high is None else f"{self.low:.1f} to {self.high:.1f}"

    @property
    def gaps(self) -> tuple[float, ...]:
        """The number less each of those that the paper prints; empty if there is none."""
        return () if self.value is None or self.paper is None else self.paper.gaps(self.value)


@dataclass(frozen=True)
class Row:
    """A line of a table; a trivial one is set apart."""

    name: str
    entries: tuple[Entry, ...]
    emphasis: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under columns.

    Args:
        id: short and without spaces, the same in every report.
        title: what is in it, and in which unit.
        corner: what the rows are.
        columns: headings.
        rows: each with one entry per column.
        notes: below it.
        fold: on the page, the heading under which it is folded away with its neighbours; empty if it is not.
        compared: the distance from the paper's numbers means something.
    """

    id: str
    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    fold: str = ""
    compared: bool = False

    def __post_init__(self) -> None:
        assert all(len(row.entries) == len(self.columns) for row in self.rows), self.id

    def numeric(self, place: int) -> bool:
        """True if there are numbers in a column."""
        return any(row.entries[place].value is not None for row in self.rows)

    @property
    def has_paper(self) -> bool:
        """True if a number of the paper stands in it."""
        return any(entry.paper for row in self.rows for entry in row.entries)


def blocks(tables: Sequence[Table]) -> Iterator[tuple[str, tuple[Table, ...]]]:
    """Yields neighbours with the heading under which they are folded away; nothing for those that are not."""

    def heading(table: Table) -> str:
        return table.fold or (f"{table.title} ({len(table.rows)} rows)" if len(table.rows) > LONG else "")

    for fold, group in groupby(tables, heading):
        yield fold, tuple(group)


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Args:
        id: as that of a table.
        title: its heading.
        intro: what it is about.
        tables: in order.
        said: sentences.
    """

    id: str
    title: str
    intro: str
    tables: tuple[Table, ...] = ()
    said: tuple[str, ...] = ()


@dataclass
class Marks:
    """Footnotes of one table, numbered as they come."""

    texts: list[str] = field(default_factory=list)

    def mark(self, name: str, text: str) -> str:
        """Returns the name with the raised number of a footnote; as it was if there is nothing to say."""
        if not text:
            return name
        if text not in self.texts:
            self.texts.append(text)
        return f"{name}\N{NO-BREAK SPACE}{str(self.texts.index(text) + 1).translate(RAISED)}"

    @property
    def notes(self) -> tuple[str, ...]:
        """All footnotes."""
        return tuple(f"{str(place).translate(RAISED)} {text}" for place, text in enumerate(self.texts, 1))
