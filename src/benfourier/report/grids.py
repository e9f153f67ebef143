"""One metric of many detectors against many attacks: the shape of most tables."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from benfourier.report.counterparts import known_as
from benfourier.report.entries import percent, with_best
from benfourier.report.paper import Printed
from benfourier.report.results import TRIVIAL, Found, Results
from benfourier.report.table import BELOW, FEW, MISSING, NOTHING, Entry, Marks, Row, Table
from benfourier.report.table import TRIVIAL as SET_APART
from benfourier.store.records import Cell, Estimate

FEWEST = 30  # successes that a cell needs, by the rules of the evaluation
OVER = "over-trivial"
BELOW_MARK = "▼"
BELOW_NOTE = f"{BELOW_MARK} below {TRIVIAL}: the paired difference lies below 0 in its whole 95 % interval."
NOT_RUN = "this detector was not run; every table needs it as its baseline"


@dataclass(frozen=True)
class Line:
    """What a row of a grid is made of.

    Args:
        name: shown before it.
        found: by column: the outcome and its cell, or None.
        printed: by column: the paper's number, or None.
        trivial: True for baselines.
        known: by column: the id of the detector as the paper knows it, or nothing.
    """

    name: str
    found: tuple[Found | None, ...]
    printed: tuple[Printed | None, ...]
    trivial: bool = False
    known: tuple[str, ...] = ()


def lines(
    results: Results,
    attacks: Sequence[str],
    find: Callable[[str, str], Found | None],
    printed: Callable[[str, str], Printed | None] = lambda method, attack: None,
) -> tuple[Line, ...]:
    """Returns a line per detector that has any cell, and always one of the trivial baseline.

    Args:
        results: of a ledger.
        attacks: labels, the columns.
        find: from labels of a detector and an attack to the cell.
        printed: from ids of both, as the paper knows them, to its number.
    """
    made = []
    newest = {outcome.detector: outcome for outcome in results.outcomes}
    methods = {label: outcome.method for label, outcome in newest.items()}
    if TRIVIAL not in methods.values():
        methods[TRIVIAL] = TRIVIAL
    for detector in (*results.detectors, *(label for label in methods if label not in results.detectors)):
        found = tuple(find(detector, attack) for attack in attacks)
        method = methods[detector]
        if any(found) or method == TRIVIAL:
            outcomes = [cell[0] if cell else newest.get(detector) for cell in found]
            known = tuple(known_as(results, outcome) if outcome else method for outcome in outcomes)
            ids = zip(known, map(results.method_of, attacks), strict=True)
            beside = tuple(printed(name, attack) for name, attack in ids)
            made.append(Line(detector, found, beside, method == TRIVIAL, known))
    return tuple(made)


def grid(
    name: str,
    title: str,
    metric: str,
    columns: Iterable[str],
    rows: Sequence[Line],
    *,
    corner: str = "detector",
    best: bool = True,
    notes: Sequence[str] = (),
    overall: bool = False,
) -> Table:
    """Returns the table of one metric, in percent.

    Args:
        name: its id.
        title: of the table.
        metric: name in the cells, or, if overall, in the outcomes.
        columns: headings, one per place of the lines.
        rows: its lines.
        corner: what the rows are.
        best: mark the highest of each column.
        notes: below the footnotes.
        overall: the metric belongs to whole outcomes.
    """
    marks = Marks()
    made = []
    for line in rows:
        reduced = sorted({outcome.reduced for outcome, _ in filter(None, line.found)} - {""})
        label = marks.mark(line.name, "; ".join(reduced))
        if line.trivial and not any(line.found):
            label = marks.mark(line.name, NOT_RUN)
        entries = tuple(
            _entry(found, metric, printed, marks, overall)
            for found, printed in zip(line.found, line.printed, strict=True)
        )
        made.append(Row(label, entries, SET_APART if line.trivial else ""))
    below = any(entry.emphasis == BELOW for row in made for entry in row.entries)
    told = (*marks.notes, *([BELOW_NOTE] if below else []), *notes)
    return Table(name, title, corner, tuple(columns), with_best(made) if best else tuple(made), told, compared=True)


def lies_below(cell: Cell) -> bool:
    """True if the detector is surely worse than the trivial one there."""
    return OVER in cell.metrics and cell.metrics[OVER].high < 0


def share(value: float) -> Estimate:
    """Returns a value that is known exactly."""
    return Estimate(value, float("nan"), float("nan"))


def _entry(found: Found | None, metric: str, printed: Printed | None, marks: Marks, overall: bool) -> Entry:
    if found is None:
        return Entry(NOTHING, paper=printed, emphasis=MISSING)
    outcome, cell = found
    held = outcome.overall if overall else cell.metrics
    if metric in held:
        below = metric == "auroc" and lies_below(cell)
        entry = percent(held[metric], printed, BELOW if below else "")
        return replace(entry, text=f"{entry.text} {BELOW_MARK}") if below else entry
    if not cell.metrics:
        few = cell.sources < FEWEST
        text = f"too few ({cell.sources})" if few else "none"
        return Entry(text if few else marks.mark(text, cell.note), paper=printed, emphasis=FEW)
    return Entry(NOTHING, paper=printed, emphasis=MISSING)
