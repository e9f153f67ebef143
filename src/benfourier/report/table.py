"""Tables as data, before anyone decides how to show them; how numbers are written in tables and sentences."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from benfourier.report.paper import PaperNumber
from benfourier.store.records import Estimate

BEST, BELOW, FEW, MISSING, APART = "best", "below", "few", "missing", "apart"
NOTHING = "–"
FOLD_ROWS = 40  # a longer table is folded away on the page
LIST_LENGTH = 4  # entries of a list in a sentence; the others are only counted
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Entry:
    """One place in a table."""

    text: str  # as shown
    value: float | None = None  # the number behind it, in the unit of the text; None if there is none
    low: float | None = None  # lower end of its interval
    high: float | None = None  # upper end
    paper: PaperNumber | None = None  # the paper's number
    emphasis: str = ""  # best, below (the baseline), few (too few successes), missing, or nothing

    @property
    def interval(self) -> str:
        """The interval in words, or nothing."""
        return "" if self.low is None or self.high is None else f"{tenths(self.low)} to {tenths(self.high)}"


@dataclass(frozen=True)
class Row:
    """A row of a table; the baseline's is set apart."""

    name: str
    entries: tuple[Entry, ...]
    emphasis: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under columns."""

    id: str  # short and without spaces, the same in every report
    title: str  # what is in it, and in which unit
    row_heading: str  # what the rows are
    columns: tuple[str, ...]  # headings
    rows: tuple[Row, ...]  # each with one entry per column
    notes: tuple[str, ...] = ()  # below it
    # on the page, the heading under which it is folded away with its neighbours; empty if it is not
    folded_under: str = ""
    differs_from_paper: bool = False  # the difference from the paper's numbers means something

    def __post_init__(self) -> None:
        assert all(len(row.entries) == len(self.columns) for row in self.rows), self.id

    def is_numeric(self, column: int) -> bool:
        """True if there are numbers in a column."""
        return any(row.entries[column].value is not None for row in self.rows)

    @property
    def has_paper(self) -> bool:
        """True if a number of the paper stands in it."""
        return any(entry.paper for row in self.rows for entry in row.entries)


def blocks(tables: Sequence[Table]) -> list[tuple[str, tuple[Table, ...]]]:
    """Returns neighbours with the heading under which they are folded away; nothing for those that are not."""

    def heading(table: Table) -> str:
        return table.folded_under or f"{table.title} ({len(table.rows)} rows)" * (len(table.rows) > FOLD_ROWS)

    return [(text, tuple(group)) for text, group in groupby(tables, heading)]


class Footnotes(dict[str, str]):
    """Footnotes of one table and their raised numbers, counted as they come."""

    def mark(self, name: str, text: str) -> str:
        """Returns the name with the raised number of a footnote; as it was if the footnote is empty."""
        number = self.setdefault(text, str(len(self) + 1).translate(RAISED)) if text else ""
        return f"{name}\N{NO-BREAK SPACE}{number}" if text else name

    @property
    def notes(self) -> tuple[str, ...]:
        """All footnotes."""
        return tuple(f"{number} {text}" for text, number in self.items())


def missing(paper: PaperNumber | None = None) -> Entry:
    """Returns the entry of a number that there is not."""
    return Entry(NOTHING, paper=paper, emphasis=MISSING)


def texts(*values: object) -> tuple[Entry, ...]:
    """Returns entries that are only text."""
    return tuple(Entry(str(value)) if str(value) else missing() for value in values)


def number(value: float, form: str = ".4g", paper: PaperNumber | None = None) -> Entry:
    """Returns the entry of a number; NaN and infinity are missing."""
    return Entry(format(value, form), float(value), paper=paper) if math.isfinite(value) else missing(paper)


def tenths(value: float) -> str:
    """Returns a number with one digit behind the point, never -0.0."""
    return f"{round(value, 1) + 0.0:.1f}"


def milliseconds(value: float) -> Entry:
    """Returns the entry of a time with three digits, or all before the point; NaN is missing."""
    return number(value, ".0f" if value >= 1000 else ".3g")


def percent(estimate: Estimate | None, paper: PaperNumber | None = None) -> Entry:
    """Returns an entry in percent, with the interval if there is one."""
    if estimate is None or not math.isfinite(estimate.value):
        return missing(paper)
    value, *ends = (100 * part for part in (estimate.value, estimate.low, estimate.high))
    low, high = ends if all(map(math.isfinite, ends)) else (None, None)
    return Entry(tenths(value), value, low, high, paper)


def mark_best(rows: Sequence[Row], columns: Iterable[int] | None = None) -> tuple[Row, ...]:
    """Returns the rows with the highest entries of each column marked, or of some in which more is better."""
    marked = [list(row.entries) for row in rows]
    for place in range(len(marked[0])) if columns is None else columns:
        # compared as shown, so that 99.81 and 99.84, both "99.8", are both the best
        shown = [None if (value := entries[place].value) is None else round(value, 1) for entries in marked]
        values = {value for value in shown if value is not None}
        for entries, value in zip(marked, shown, strict=True):
            if len(values) > 1 and value == max(values) and not entries[place].emphasis:
                entries[place] = replace(entries[place], emphasis=BEST)
    return tuple(replace(row, entries=tuple(entries)) for row, entries in zip(rows, marked, strict=True))


def percent_text(estimate: Estimate) -> str:
    """Returns percent with the interval, if there is one, for a sentence."""
    interval = percent(estimate).interval
    return f"{100 * estimate.value:.1f} %" + (f" ({interval})" if interval else "")


def plural(count: int, noun: str) -> str:
    """Returns "1 cell" or "2 cells"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def quote(label: str) -> str:
    """Returns a label that can stand in a sentence."""
    return f"“{label}”" if "," in label or " " in label else label


def join(parts: Sequence[str], between: str = ", ") -> str:
    """Returns a list in words; of a long one the first entries and the number of the others."""
    rest = len(parts) - LIST_LENGTH
    return between.join(parts[:LIST_LENGTH]) + (f"{between}and {rest} more" if rest > 0 else "")
