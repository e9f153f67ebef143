"""Tables of detection: the protocols, and the comparison with C1&C2t/u.

A grid is one metric of many detectors against many attacks, beside the baseline and the paper's numbers.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from benfourier.metrics.registry import CELL_METRICS, OUTCOME_METRICS
from benfourier.report.paper import NONE, VGG19, Paper, PaperNumber, all_cells
from benfourier.report.registry import DOCS, PAGE_AND_DOCS, table
from benfourier.report.results import (
    ACCURACY,
    AUROC,
    CAUGHT,
    GAIN,
    CellRef,
    Results,
    find_cell,
    fit_name,
)
from benfourier.report.table import APART, BELOW, FEW, Entry, Footnotes, Row, Table, mark_best, missing, percent
from benfourier.store.records import AttackSummary, Estimate, Outcome
from benfourier.store.vocabulary import BASELINE, DEFENSE_GAN, MBF, MIN_SUCCESSES, ProtocolName

SAME_ATTACK, OTHER_ATTACK, OTHER_DATA, OTHER_STRENGTH, ALL_ATTACKS, MIXTURE, UNSEEN, LEFT_OUT = ProtocolName
MANY = {  # protocols of one fit to many attacks, and what each is fitted to
    ALL_ATTACKS: "all attacks together",
    MIXTURE: "the default mixture",
    UNSEEN: "the default mixture",
    LEFT_OUT: "all other attacks",
}
MAIN_METRICS = (AUROC, ACCURACY)  # shown for every protocol, the others for fits to the tested attack only
MORE_METRICS = "AUPR, rates of detection and of false alarms, AUROC of parts of the images"
RATES_NOTE = (
    "By learning rate of the attack: that of Adam for cw, the step for pgd. The paper's caption says MNIST, its text "
    "says CIFAR-10 with VGG-19."
)
RATE_ATTACKS = {"cw": "cw-l2", "pgd": "r-pgd"}
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
        for name, printed in zip(row.paper_names, row.paper, strict=False):
            theirs, ours = paper.gan_effort(name), name.removeprefix(DEFENSE_GAN).strip()
            if theirs and printed:
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


def each_source(make: Callable[..., Iterable[Table]]) -> Callable[..., Iterator[Table]]:
    """Returns the function for all data; tables of a second source are named after it."""

    @wraps(make)
    def make_all(results: Results, **keywords: Any) -> Iterator[Table]:
        for place, source in enumerate(results.sources, 1):
            for each in make(results, source, **keywords):
                yield each if place == 1 else replace(each, id=f"{each.id}-{place}", title=f"{each.title}, {source}")

    return make_all


@table("other-data-accuracy", section=OTHER_DATA, metric=ACCURACY, protocol=OTHER_DATA)
@table("other-data", section=OTHER_DATA, audiences=PAGE_AND_DOCS, metric=AUROC, protocol=OTHER_DATA)
@table("left-out", section=LEFT_OUT, audiences=PAGE_AND_DOCS, metric=AUROC, protocol=LEFT_OUT)
@table("unseen-caught", section=UNSEEN, audiences=PAGE_AND_DOCS, metric=CAUGHT, protocol=UNSEEN)
@table("unseen", section=UNSEEN, audiences=PAGE_AND_DOCS, metric=AUROC, protocol=UNSEEN)
@table("mixture-caught", section=MIXTURE, audiences=PAGE_AND_DOCS, metric=CAUGHT, protocol=MIXTURE)
@table("mixture", section=MIXTURE, audiences=PAGE_AND_DOCS, metric=AUROC, protocol=MIXTURE)
@table("all-attacks-accuracy", section=ALL_ATTACKS, metric=ACCURACY, protocol=ALL_ATTACKS)
@table("all-attacks", section=ALL_ATTACKS, audiences=PAGE_AND_DOCS, metric=AUROC, protocol=ALL_ATTACKS)
@table("same-attack-accuracy", section=SAME_ATTACK, audiences=PAGE_AND_DOCS, metric=ACCURACY, protocol=SAME_ATTACK)
@table("same-attack", section=SAME_ATTACK, audiences=PAGE_AND_DOCS, metric=AUROC, protocol=SAME_ATTACK)
@each_source
def by_attack(results: Results, source: str, metric: str, protocol: ProtocolName) -> Iterator[Table]:
    """Yields a metric of detectors under each attack, one table per source of the tested images."""
    outcomes = results.of(protocol, source)
    for tested in dict.fromkeys(cell.source for outcome in outcomes for cell in outcome.cells):
        same = [outcome for outcome in outcomes if any(cell.source == tested for cell in outcome.cells)]
        fits = {**MANY, OTHER_DATA: f"{source}, tested on {tested}"}
        each = _protocol_table(results, same, tested, metric)
        yield replace(each, title=f"{each.title}, fitted to {fits[protocol]}") if protocol in fits else each


@table("same-attack-metrics", section=SAME_ATTACK)
@each_source
def same_attack_metrics(results: Results, source: str) -> Iterator[Table]:
    """Yields a table of every other metric that has values."""
    outcomes = results.of(SAME_ATTACK, source)
    rates = [metric.key for metric in OUTCOME_METRICS.values() if metric.better == "lower"]  # they need no attack
    metrics = dict.fromkeys(key for key in (GAIN, *CELL_METRICS, *rates) if key not in MAIN_METRICS)
    for metric in metrics if outcomes else ():
        each = _protocol_table(results, outcomes, source, metric)
        if any(map(each.is_numeric, range(len(each.columns)))):
            yield each if metric == GAIN else replace(each, folded_under=MORE_METRICS)


def _protocol_table(results: Results, outcomes: Sequence[Outcome], tested: str, metric: str) -> Table:
    """A metric of detectors under each attack, beside the paper's numbers; the outcomes are of one protocol."""
    attacks = results.attacks_of(outcomes)
    protocol, source = outcomes[0].protocol, outcomes[0].source
    paper, facts = results.paper(source), CELL_METRICS.get(metric) or OUTCOME_METRICS[metric]
    newest = {outcome.detector: outcome for outcome in results.outcomes}
    ids, any_fit = [results.attack_id(attack) for attack in attacks], protocol in MANY
    rows = []
    for detector in dict.fromkeys((*results.detectors, *results.baselines)):
        cells = tuple(find_cell(outcomes, detector, None if any_fit else attack, attack) for attack in attacks)
        if any(cells) or detector in results.baselines:
            # where a cell is missing, the detector's newest outcome says which of the paper's numbers belongs there
            known = [ref.outcome if ref else newest.get(detector) for ref in cells]
            names = tuple(results.paper_detector(outcome) if outcome else detector for outcome in known)
            places = zip(names, ids, strict=True)
            numbers = tuple(paper.beside(protocol, metric, name, attack, attack) for name, attack in places)
            rows.append(GridRow(detector, cells, numbers, detector in results.baselines, names))
    heads, reduced = headings(results, attacks, tested)
    beside = paper_notes(paper, source, rows) if metric in MAIN_METRICS and not any_fit else []
    notes = [*reduced, *beside, *([facts.note] if facts.note else [])]
    name = f"{protocol}-{metric}".replace("@", "-").replace("%", "")
    best = facts.better == "higher"
    return grid(name, f"{facts.title}, {facts.unit}", metric, heads, rows, best=best, notes=notes)


@table("unseen-overall", section=UNSEEN, audiences=PAGE_AND_DOCS, protocol=UNSEEN)
@table("mixture-overall", section=MIXTURE, audiences=PAGE_AND_DOCS, protocol=MIXTURE)
@table("all-attacks-overall", section=ALL_ATTACKS, audiences=PAGE_AND_DOCS, protocol=ALL_ATTACKS)
@each_source
def all_attacks_overall(results: Results, source: str, protocol: ProtocolName) -> Iterator[Table]:
    """Yields the metrics over all attacks of each detector."""
    outcomes = {outcome.detector: outcome for outcome in results.of(protocol, source)}
    metrics = [m for m in OUTCOME_METRICS.values() if any(m.key in outcome.overall for outcome in outcomes.values())]
    footnotes, rows = Footnotes(), []
    for detector in (label for label in results.detectors if label in outcomes):
        outcome = outcomes[detector]
        entries = tuple(percent(outcome.overall.get(metric.key)) for metric in metrics)
        label = footnotes.mark(detector, outcome.reduced)
        rows.append(Row(label, entries, APART if outcome.method == BASELINE else ""))
    columns = tuple(metric.title for metric in metrics)
    notes = (*footnotes.notes, *dict.fromkeys(metric.note for metric in metrics if metric.note))
    if rows:
        yield Table(
            f"{protocol}-overall", "All attacks on an image at once, %", "detector", columns, tuple(rows), notes
        )


@table("other-attack-accuracy", section=OTHER_ATTACK, metric=ACCURACY, folded_under="Accuracy, detector by detector")
@table("other-attack-mbf", section=OTHER_ATTACK, audiences=frozenset({DOCS}), metric=AUROC, paper_mbf_only=True)
@table("other-attack", section=OTHER_ATTACK, metric=AUROC)
@each_source
def other_attack(
    results: Results, source: str, metric: str, *, paper_mbf_only: bool = False, folded_under: str = ""
) -> Iterator[Table]:
    """Yields a table per detector: fitted to one attack, tested on each."""
    paper = results.paper(source)
    for place, detector in enumerate(results.detectors, 1):
        rows = transfer_rows(results, source, detector, metric)
        if not rows or (paper_mbf_only and detector != results.paper_mbf):
            continue
        # of other settings of mbf than the paper's own the table says where the paper's numbers stand, if it has any
        ids = [results.attack_id(row.name) for row in rows]
        is_known = any(paper.beside(OTHER_ATTACK, metric, MBF, fitted, attack) for fitted in ids for attack in ids)
        is_other = results.paper_mbf and is_known and not any(any(row.paper_names) for row in rows)
        notes = [OWN_NOTE.format(results.paper_mbf)] if is_other else paper_notes(paper, source, rows)
        name, title = f"{OTHER_ATTACK}-{metric}-{place}", f"{CELL_METRICS[metric].title} of {detector}, %"
        columns = [row.name for row in rows]
        each = grid(name, title, metric, columns, rows, row_heading="fit ↓ test →", best=False, notes=notes)
        yield replace(each, folded_under=folded_under)


def transfer_rows(results: Results, source: str, detector: str, metric: str) -> tuple[GridRow, ...]:
    """Returns a row per attack in the fit; the diagonal may come from fits that were tested on the same attack."""
    crossed = [outcome for outcome in results.of(OTHER_ATTACK, source) if outcome.detector == detector]
    if not crossed:
        return ()
    every = results.of(OTHER_ATTACK, source)
    labels = {label for outcome in every for label in (*outcome.fitted, *(cell.attack for cell in outcome.cells))}
    attacks = [attack for attack in results.attacks if attack in labels]
    paper, name = results.paper(source), results.paper_detector(crossed[-1])
    outcomes = (*results.of(SAME_ATTACK, source), *every)
    ids = [results.attack_id(attack) for attack in attacks]
    rows = []
    for fitted, own_id in zip(attacks, ids, strict=True):
        cells = tuple(find_cell(outcomes, detector, fitted, attack) for attack in attacks)
        numbers = tuple(paper.beside(OTHER_ATTACK, metric, name, own_id, attack) for attack in ids)
        rows.append(GridRow(fitted, cells, numbers, paper_names=(name,) * len(attacks)))
    return tuple(rows)


@table("other-strength", section=OTHER_STRENGTH)
@each_source
def other_strength(results: Results, source: str) -> Iterator[Table]:
    """Yields tables of fits to boundary attacks, tested at fixed strengths, and of fits to these, tested on all."""
    outcomes, boundary = results.of(OTHER_STRENGTH, source), results.boundary_attacks
    near = [outcome for outcome in outcomes if set(outcome.fitted) <= boundary]
    far = [outcome for outcome in outcomes if outcome not in near]
    yield from _strength_tables(results, "strength-up", "boundary attacks, tested at fixed strengths", near)
    yield from _strength_tables(results, "strength-down", "fixed strengths, tested on all attacks", far)


def _strength_tables(results: Results, name: str, way: str, outcomes: Sequence[Outcome]) -> Iterator[Table]:
    columns = results.attacks_of(outcomes)
    fits = {outcome.fitted for outcome in outcomes if outcome.fitted}
    # where all were fitted to the same attacks the rows need not say it
    shared = [f"Fitted to {', '.join(fit)} together." for fit in fits if len(fits) == 1 and len(fit) > 1]
    rows = []
    for detector in results.detectors:
        own = [outcome for outcome in outcomes if outcome.detector == detector]
        for fitted in dict.fromkeys(outcome.fitted for outcome in own):
            same = [outcome for outcome in own if outcome.fitted == fitted]
            label = detector if shared else f"{detector}, {fit_name(fitted)}"
            cells = tuple(find_cell(same, detector, None, column) for column in columns)
            rows.append(GridRow(label, cells, is_baseline=detector in results.baselines))
    if not any(row.is_baseline for row in rows):
        rows += [GridRow(label, (None,) * len(columns), is_baseline=True) for label in results.baselines]
    heading = "detector" if shared else "detector, fitted to"
    for metric in MAIN_METRICS if outcomes else ():
        title = f"{CELL_METRICS[metric].title}, %, fitted to {way}"
        each = grid(f"{name}-{metric}", title, metric, columns, rows, row_heading=heading, best=False, notes=shared)
        yield replace(each, folded_under=title) if metric == ACCURACY else each


@dataclass(frozen=True)
class RateCell:
    """A cell of the paper's comparison with C1&C2t/u, and ours."""

    detector: str  # the paper's name
    attack: str  # cw or pgd
    rate: str  # learning rate of the attack, as printed
    number: PaperNumber  # the paper's AUROC
    auroc: Estimate | None  # ours; None if there is none
    label: str  # of our detector


def rate_cells(results: Results) -> tuple[RateCell, ...]:
    """Returns all cells of that comparison, for results that stand beside it; else nothing."""
    if results.paper().database != VGG19:
        return ()
    # of several fits to an attack that of a detector with plain settings counts, then the newest
    newest_first = results.of(SAME_ATTACK)[::-1]
    outcomes = sorted(newest_first, key=lambda outcome: outcome.detector != outcome.method)
    cells = []
    for place, printed in ((cell.place, cell.number) for cell in all_cells() if cell.place["table"] == "c1c2"):
        detector, attack, rate = (place[key] for key in ("detector", "attack", "rate"))
        attacks = {each.attack for each in results.attack_summaries if _rate(each, RATE_ATTACKS[attack]) == float(rate)}
        own = (CellRef(outcome, cell) for outcome in outcomes for cell in outcome.cells if cell.attack in attacks)
        refs = (ref for ref in own if results.paper_detector(ref.outcome) == detector and AUROC in ref.cell.metrics)
        auroc, label = next(((ref.auroc, ref.outcome.detector) for ref in refs), (None, detector))
        cells.append(RateCell(detector, attack, rate, printed, auroc, label))
    return tuple(cells)


def _rate(summary: AttackSummary, method: str) -> float | None:
    """Learning rate or step of an attack; None for another method, or one that goes beyond the boundary."""
    options = summary.options
    is_other = summary.method != method or options.get("confidence")
    return None if is_other else options.get("lr", options.get("step"))


@table("c1c2", section=SAME_ATTACK, audiences=PAGE_AND_DOCS)
def learning_rates(results: Results) -> Iterator[Table]:
    """Yields the comparison with C1&C2t/u by learning rate; nothing if there is no such cell."""
    cells = rate_cells(results)
    if not any(cell.auroc for cell in cells):
        return
    columns = tuple(dict.fromkeys(f"{cell.attack} at {cell.rate}" for cell in cells))
    rows = tuple(
        Row(detector, tuple(percent(cell.auroc, cell.number) for cell in cells if cell.detector == detector))
        for detector in dict.fromkeys(cell.detector for cell in cells)
    )
    labels = {cell.detector: cell.label for cell in cells if cell.auroc and cell.label != cell.detector}
    ours = [f"Ours: {results.network}", *(f"{detector} is “{label}”" for detector, label in labels.items())]
    notes = (RATES_NOTE, f"{'; '.join(ours)}.")
    yield Table("c1c2", "AUROC beside C1&C2t/u, %", "detector", columns, rows, notes, differs_from_paper=True)
