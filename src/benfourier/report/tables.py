"""Tables of detection: the same attack in fit and test, all attacks mixed, another source of images."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

from benfourier.report.entries import percent
from benfourier.report.grids import OVER, Line, grid, lines, share
from benfourier.report.notes import RATE_NOTE, few_notes, paper_notes, with_always
from benfourier.report.results import ALONE, ELSEWHERE, MIXED, Found, Results, cell_of
from benfourier.report.results import TRIVIAL as TRIVIAL_METHOD
from benfourier.report.table import TRIVIAL, Marks, Row, Table
from benfourier.store.records import Outcome

RATES = ("5%", "1%", "0.1%")
OVERALL_NOTES = (
    "Worst AUROC: that of the attack that fares best against the detector.",
    "MEAD: an image counts as caught only if every successful attack on it is; at that rate of false alarms.",
    "Rejected: share of clean images, rightly or wrongly classified, above the threshold for 5 % false alarms.",
)
OVER_NOTE = "Paired: both see the same images in every draw. An interval without 0 tells them apart."
TITLES = {"auroc": "AUROC", "accuracy": "Accuracy at posterior 0.5", "aupr": "AUPR"}


def same_attack(results: Results, source: str) -> Iterator[Table]:
    """Yields the tables of detectors fitted to the attack that they are tested on."""
    outcomes = results.of(ALONE, source)
    attacks = results.tested(outcomes)
    if not attacks:
        return
    paper = results.paper(source)
    found = partial(_same, outcomes)
    heads, made_with = _columns(results, attacks, source)
    for metric in ("auroc", "accuracy", "aupr"):
        rows = lines(results, attacks, found, partial(paper.same_attack, metric))
        notes = [*made_with, *paper_notes(paper, source, rows), *few_notes(rows)]
        table = grid(f"non-transfer-{metric}", f"{TITLES[metric]}, %", metric, heads, rows, notes=notes)
        yield with_always(table, rows) if metric == "accuracy" else table
    rows = lines(results, attacks, found)
    over = grid(
        "non-transfer-over", f"AUROC less that of {TRIVIAL_METHOD}, points", OVER, heads, rows, notes=[OVER_NOTE]
    )
    if _told(over):
        yield over
    for rate in RATES:
        title = f"Adversarial images caught at {rate[:-1]} % false alarms, %"
        caught = grid(f"tpr-{rate[:-1]}", title, f"tpr@{rate}", heads, rows, notes=[*made_with, RATE_NOTE])
        if _told(caught):
            yield caught
    yield from _false_alarms(rows, heads)


def elsewhere(results: Results, source: str) -> Iterator[Table]:
    """Yields the tables of detectors tested on images of another source."""
    outcomes = results.of(ELSEWHERE, source)
    paper = results.paper(source)
    for other in dict.fromkeys(cell.source for outcome in outcomes for cell in outcome.cells):
        there = [outcome for outcome in outcomes if any(cell.source == other for cell in outcome.cells)]
        attacks = results.tested(there)
        heads, made_with = _columns(results, attacks, other)
        for metric in ("auroc", "accuracy"):
            rows = lines(results, attacks, partial(_same, there), partial(paper.elsewhere, metric))
            title = f"{TITLES[metric]}, %, fitted to {source}, tested on {other}"
            notes = [*made_with, *paper_notes(paper, source, rows), *few_notes(rows)]
            table = grid(f"data-transfer-{metric}", title, metric, heads, rows, notes=notes)
            yield with_always(table, rows) if metric == "accuracy" else table


def mixed(results: Results, source: str) -> Iterator[Table]:
    """Yields the tables of detectors fitted to all attacks together."""
    outcomes = results.of(MIXED, source)
    attacks = results.tested(outcomes)
    if not attacks:
        return
    heads, made_with = _columns(results, attacks, source)
    rows = lines(results, attacks, lambda detector, attack: cell_of(outcomes, detector, None, attack))
    for metric in ("auroc", "accuracy"):
        title = f"{TITLES[metric]}, %, fitted to all attacks together"
        table = grid(f"mixed-{metric}", title, metric, heads, rows, notes=[*made_with, *few_notes(rows)])
        yield with_always(table, rows) if metric == "accuracy" else table
    yield _overall(results, outcomes)


def _overall(results: Results, outcomes: Sequence[Outcome]) -> Table:
    """Worst case, MEAD and false alarms of each detector."""
    wanted = {"worst-auroc": "worst AUROC"}
    wanted |= {f"mead@{rate}": f"MEAD at {rate[:-1]}\N{NO-BREAK SPACE}%" for rate in RATES}
    wanted |= {"fpr-clean@5%": "clean, rejected", "fpr-misclassified@5%": "misclassified, rejected"}
    names = [name for name in wanted if any(name in outcome.overall for outcome in outcomes)]
    marks, rows = Marks(), []
    for detector in results.detectors:
        for outcome in [outcome for outcome in outcomes if outcome.detector == detector][-1:]:
            entries = tuple(percent(outcome.overall.get(name, share(math.nan))) for name in names)
            apart = TRIVIAL if outcome.method == TRIVIAL_METHOD else ""
            rows.append(Row(marks.mark(detector, outcome.reduced), entries, apart))
    columns = tuple(wanted[name] for name in names)
    title = "All attacks on an image at once, %"
    return Table("mixed-overall", title, "detector", columns, tuple(rows), (*marks.notes, *OVERALL_NOTES))


def _false_alarms(rows: Sequence[Line], heads: Sequence[str]) -> Iterator[Table]:
    for name, title in (("clean", "held-out clean"), ("noisy", "noisy"), ("misclassified", "misclassified clean")):
        metric = f"fpr-{name}@5%"
        overall = not any(found and metric in found[1].metrics for line in rows for found in line.found)
        note = "The threshold was set for 5 % false alarms on other clean images."
        head = f"False alarms on {title} images, %"
        table = grid(f"fpr-{name}", head, metric, heads, rows, best=False, notes=[note], overall=overall)
        if _told(table):
            yield table


def _columns(results: Results, attacks: Sequence[str], source: str) -> tuple[list[str], tuple[str, ...]]:
    """Attacks as headings, marked where something was reduced, and what the marks say."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    told = dict.fromkeys(results.reduced(attack, source) for attack in attacks)
    marks = {text: letters[place % 26] for place, text in enumerate(text for text in told if text)}
    heads = [f"{attack} ({marks[text]})" if (text := results.reduced(attack, source)) else attack for attack in attacks]
    return heads, tuple(f"({mark}) {text}" for text, mark in marks.items())


def _same(outcomes: Sequence[Outcome], detector: str, attack: str) -> Found | None:
    return cell_of(outcomes, detector, attack, attack)


def _told(table: Table) -> bool:
    return any(entry.value is not None for row in table.rows for entry in row.entries)
