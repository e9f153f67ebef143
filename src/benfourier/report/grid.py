"""Grids: one metric of many detectors against many attacks, beside the baseline and the paper's numbers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benfourier.metrics.registry import CELL_METRICS
from benfourier.report.paper import NONE, Paper, PaperNumber
from benfourier.report.results import ACCURACY, AUROC, CellRef, Results
from benfourier.report.table import APART, BELOW, FEW, Entry, Footnotes, Row, Table, mark_best, missing, percent
from benfourier.store.records import Estimate
from benfourier.store.vocabulary import BASELINE, DEFENSE_GAN, MBF, MIN_SUCCESSES

BELOW_MARK = "▼"
BELOW_NOTE = f"{BELOW_MARK} below {BASELINE}: the paired difference lies below 0 in its whole 95 % interval."
NOT_RUN = "this detector was not run; every table needs it as its baseline"
FEW_NOTE = f"“too few”: fewer than {MIN_SUCCESSES} images on which the attack succeeded; their number in brackets."
ALWAYS = "always “benign”"
ALWAYS_NOTE = f"{ALWAYS}: the share of benign images, which needs no detector."
OWN_NOTE = "Of the settings of mbf, only “{}” has the paper's numbers beside it."
BENIGN_SHARE = Estimate(2 / 3, math.nan, math.nan)  # every source image has a clean, a noisy and an attacked version


@dataclass(frozen=True)
class GridRow:
    """What a row of a grid is made of."""

    name: str  # shown before it
    cells: tuple[CellRef | None, ...]  # by column
    paper: tuple[PaperNumber | None, ...] = ()  # by column: the paper's number, or None; empty if it has none at all
    is_baseline: bool = False  # True for the baseline, which is set apart
    paper_names: tuple[str, ...] = ()  # by column: the detector's name in the paper's tables, or nothing


def grid(
    name: str,
    title: str,
    metric: str,
    columns: Iterable[str],
    rows: Sequence[GridRow],
    *,
    row_heading: str = "detector",
    best: bool = True,
    notes: Sequence[str] = (),
) -> Table:
    """Returns the table of one metric, in percent; `best` marks the highest of each column."""
    footnotes, lines = Footnotes(), []
    for row in rows:
        reduced = "; ".join(sorted({ref.outcome.reduced for ref in row.cells if ref} - {""}))
        label = footnotes.mark(row.name, NOT_RUN if row.is_baseline and not any(row.cells) else reduced)
        places = zip(row.cells, row.paper or (None,) * len(row.cells), strict=True)
        entries = tuple(_grid_entry(ref, metric, paper, footnotes) for ref, paper in places)
        lines.append(Row(label, entries, APART if row.is_baseline else ""))
    below = any(entry.emphasis == BELOW for line in lines for entry in line.entries)
    few = any(ref and not ref.cell.metrics for row in rows for ref in row.cells)
    all_notes = [*footnotes.notes, *[BELOW_NOTE] * below, *notes, *[FEW_NOTE] * few]
    shown = mark_best(lines) if best else tuple(lines)
    if metric == ACCURACY:  # the accuracy of a detector that never says "adversarial", in columns with any result
        by_column = zip(*(row.cells for row in rows), strict=True)
        tested = (any(ref and ref.cell.metrics for ref in column) for column in by_column)
        shown += (Row(ALWAYS, tuple(percent(BENIGN_SHARE) if known else missing() for known in tested), APART),)
        all_notes.append(ALWAYS_NOTE)
    return Table(name, title, row_heading, tuple(columns), shown, tuple(all_notes), differs_from_paper=True)


def _grid_entry(ref: CellRef | None, metric: str, paper: PaperNumber | None, footnotes: Footnotes) -> Entry:
    if ref is None:
        return missing(paper)
    # rates of false alarms on misclassified images belong to an outcome, not to an attack
    estimate = ref.cell.metrics.get(metric, ref.outcome.overall.get(metric) if metric not in CELL_METRICS else None)
    if estimate is not None:
        entry = percent(estimate, paper)
        below = metric == AUROC and ref.is_below_baseline
        return replace(entry, text=f"{entry.text} {BELOW_MARK}", emphasis=BELOW) if below else entry
    if not ref.cell.metrics:
        few = ref.cell.sources < MIN_SUCCESSES
        text = f"too few ({ref.cell.sources})" if few else footnotes.mark("none", ref.cell.note)
        return Entry(text, paper=paper, emphasis=FEW)
    return missing(paper)


def paper_notes(paper: Paper, source: str, rows: Sequence[GridRow]) -> list[str]:
    """Returns which table of the paper stands beside ours, and what it lacks or may have wrong."""
    if paper.database == NONE:
        return [f"The paper has no counterpart to {source}."]
    numbers = [number for row in rows for number in row.paper if number]
    if not numbers:
        return [f"The paper has no such table for {paper.database}."]
    notes = [f"Beside ours: the paper's numbers for {paper.database}."]
    lacking = [row.name for row in rows if not any(row.paper) and not row.is_baseline and any(row.paper_names)]
    if lacking:
        notes.append(f"The paper has none for {', '.join(lacking)}.")
    own = [row.name for row in rows if MBF in row.paper_names]
    if own and not all(any(row.paper_names) for row in rows):
        notes.append(OWN_NOTE.format(own[0]))
    efforts: dict[str, None] = {}  # of the paper's Defense-GAN beside a row, and ours where it is another
    for row in rows:
        for name, number in zip(row.paper_names, row.paper, strict=False):
            theirs, ours = paper.gan_effort(name), name.removeprefix(DEFENSE_GAN).strip()
            if theirs and number:
                efforts[f"{theirs} beside {row.name}" + f", which has {ours}" * (ours not in ("", theirs))] = None
    if efforts:
        notes.append(f"Iterations × runs of the paper's Defense-GAN: {'; '.join(efforts)}.")
    doubts = dict.fromkeys(number.doubt for number in numbers if number.doubt)
    return [*notes, *(f"? {doubt}." for doubt in doubts)]


def headings(results: Results, attacks: Sequence[str], source: str) -> tuple[list[str], list[str]]:
    """Returns attacks as headings, marked where something was reduced, and what the marks say."""
    reduced = {each.attack: each.reduced for each in results.attack_summaries if each.source == source}
    texts = dict.fromkeys(reduced[attack] for attack in attacks if reduced.get(attack))
    marks = dict(zip(texts, "abcdefghijklmnopqrstuvwxyz", strict=False))
    heads = [f"{name} ({marks[reduced[name]]})" if reduced.get(name) in marks else name for name in attacks]
    return heads, [f"({mark}) {text}" for text, mark in marks.items()]
