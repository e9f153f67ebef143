"""Entries of tables, from words, numbers and estimates."""

import math
from collections.abc import Sequence
from dataclasses import replace

from benfourier.report.paper import Printed
from benfourier.report.table import BEST, MISSING, NOTHING, Entry, Row
from benfourier.store.records import Estimate


def words(*texts: object) -> tuple[Entry, ...]:
    """Returns entries that are only text."""
    return tuple(Entry(str(text)) if str(text) else Entry(NOTHING, emphasis=MISSING) for text in texts)


def number(value: float, form: str = ".4g", paper: Printed | None = None) -> Entry:
    """Returns an entry of a number; NaN and infinity are missing."""
    if not math.isfinite(value):
        return Entry(NOTHING, paper=paper, emphasis=MISSING)
    return Entry(format(value, form), float(value), paper=paper)


def percent(estimate: Estimate, paper: Printed | None = None, emphasis: str = "") -> Entry:
    """Returns an entry in percent, with the interval if it can be told."""
    if not math.isfinite(estimate.value):
        return Entry(NOTHING, paper=paper, emphasis=MISSING)
    value, low, high = (100 * part for part in (estimate.value, estimate.low, estimate.high))
    told = math.isfinite(low) and math.isfinite(high)
    return Entry(f"{value:.1f}", value, low if told else None, high if told else None, paper, emphasis)


def with_best(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Returns the rows with the best entry of every column marked, equal ones all, unless marked otherwise."""
    shown = [[entry.value for entry in row.entries] for row in rows]
    tops = []
    for column in zip(*shown, strict=True):
        told = [round(value, 1) for value in column if value is not None]
        tops.append(max(told) if len(set(told)) > 1 else None)
    return tuple(
        replace(
            row,
            entries=tuple(
                replace(entry, emphasis=BEST)
                if entry.value is not None and not entry.emphasis and round(entry.value, 1) == top
                else entry
                for entry, top in zip(row.entries, tops, strict=True)
            ),
        )
        for row in rows
    )
