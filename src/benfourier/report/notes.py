"""What is said below tables: which numbers of the paper stand there, which are lacking, and what needs no detector."""

from collections.abc import Sequence
from dataclasses import replace

from benfourier.report.entries import percent
from benfourier.report.grids import FEWEST, Line, share
from benfourier.report.paper import NONE, Paper
from benfourier.report.results import GAN, MBF
from benfourier.report.table import MISSING, NOTHING, TRIVIAL, Entry, Row, Table
from benfourier.store.records import Scores

ALWAYS = "always “benign”"
FEW_NOTE = f"“too few”: fewer than {FEWEST} images on which the attack succeeded; their number in brackets."
RATE_NOTE = "A rate needs 10/rate held-out clean images to set its threshold; – stands where there were fewer."


def paper_notes(paper: Paper, source: str, rows: Sequence[Line]) -> list[str]:
    """Returns which table of the paper stands beside ours, and what it lacks or may have wrong."""
    if paper.database == NONE:
        return [f"The paper has no counterpart to {source}."]
    printed = [(line, number) for line in rows for number in line.printed if number]
    if not printed:
        return [f"The paper has no such table for {paper.database}."]
    told = [f"Beside ours: the paper's numbers for {paper.database}."]
    lacking = [line.name for line in rows if not any(line.printed) and not line.trivial and any(line.known)]
    if lacking:
        told.append(f"The paper has none for {', '.join(lacking)}.")
    own = [line.name for line in rows if MBF in line.known]
    if own and not all(any(line.known) for line in rows):
        told.append(own_note(own[0]))
    efforts = [text for line in rows for text in _efforts(paper, line)]
    if efforts:
        told.append(f"Iterations × runs of the paper's Defense-GAN: {'; '.join(efforts)}.")
    doubts = dict.fromkeys(number.doubt for _, number in printed if number.doubt)
    return [*told, *(f"? {doubt}." for doubt in doubts)]


def own_note(label: str) -> str:
    """Returns which of several settings of mbf the paper's stands beside."""
    return f"Of the settings of mbf, only “{label}” has the paper's numbers beside it."


def few_notes(rows: Sequence[Line]) -> list[str]:
    """Returns what "too few" means, if it stands in the table."""
    few = any(found and not found[1].metrics for line in rows for found in line.found)
    return [FEW_NOTE] if few else []


def with_always(table: Table, rows: Sequence[Line]) -> Table:
    """Returns the table with the accuracy of a detector that never says "adversarial"."""
    entries = tuple(_benign(rows, place) for place in range(len(table.columns)))
    note = f"{ALWAYS}: the share of benign images, which needs no detector."
    return replace(table, rows=(*table.rows, Row(ALWAYS, entries, TRIVIAL)), notes=(*table.notes, note))


def _efforts(paper: Paper, line: Line) -> list[str]:
    """The effort of the paper's Defense-GAN beside a row, and ours where it is another."""
    known = [name for name, number in zip(line.known, line.printed, strict=True) if number and name.startswith(GAN)]
    told = []
    for name in dict.fromkeys(known):
        theirs, ours = paper.gan_effort(name), name[len(GAN) :].strip()
        told.append(f"{theirs} beside {line.name}" + (f", which has {ours}" if ours not in ("", theirs) else ""))
    return told


def _benign(rows: Sequence[Line], place: int) -> Entry:
    for line in rows:
        found = line.found[place]
        if found and found[1].metrics:
            return percent(share(_benign_share(found[1].scores)))
    return Entry(NOTHING, emphasis=MISSING)


def _benign_share(scores: Scores | None) -> float:
    """Two thirds where scores are left out: every source image has a clean, a noisy and an attacked row."""
    if scores is None:
        return 2 / 3
    benign = len(scores.clean) + len(scores.noisy)
    return benign / (benign + len(scores.adversarial))
