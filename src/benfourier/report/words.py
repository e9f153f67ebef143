"""What the numbers say, in sentences; every one follows from records of the ledger."""

import math
from collections.abc import Iterator, Sequence

from benfourier.report.counterparts import papers_mbf
from benfourier.report.gaps import beside_paper
from benfourier.report.grids import OVER, lies_below
from benfourier.report.results import ALONE, ELSEWHERE, MBF, MIXED, STRENGTH, TRANSFER, TRIVIAL, Results
from benfourier.report.spots import Spot, counted, listed, named, points, spots, told

GOOD = 0.9
PLACES = {
    ALONE: "Fitted to and tested on the same attack",
    TRANSFER: "Fitted to one attack and tested on another",
    ELSEWHERE: "Tested on images of another source",
    STRENGTH: "Fitted to attacks of one strength and tested on another",
    MIXED: "Fitted to all attacks together",
}


def sentences(results: Results) -> tuple[str, ...]:
    """Returns what must be known of a ledger's results, the worst included."""
    labels = [label for label in results.detectors if _method(results, label) == MBF]
    if not labels:
        return ("This ledger holds no results of mbf.", *_gaps_in_it(results))
    return (*(line for label in labels for line in _of_one(results, label)), *_gaps_in_it(results))


def _of_one(results: Results, label: str) -> Iterator[str]:
    for protocol, place in PLACES.items():
        mine = [spot for spot in spots(results, protocol) if spot.outcome.detector == label]
        if protocol in (TRANSFER, STRENGTH):
            mine = [spot for spot in mine if spot.cell.attack not in spot.outcome.fitted]
        if mine:
            yield from held(place, named(label), mine)
            yield from against_trivial(named(label), mine)
            if protocol in (ALONE, ELSEWHERE, MIXED):
                yield from _against_others(results, protocol, named(label), mine)
    yield from _mead(results, label)
    if label == papers_mbf(results):
        yield from beside_paper(results, label)


def held(place: str, label: str, mine: Sequence[Spot]) -> Iterator[str]:
    """Yields how many cells hold, and which is the worst."""
    good = sum(spot.auroc.value >= GOOD for spot in mine)
    worst = min(mine, key=lambda spot: spot.auroc.value)
    yield (
        f"{place}, {label} has an AUROC of at least {100 * GOOD:.0f} % in {good} of {counted(len(mine), 'cell')}; "
        f"its worst is {worst.name} with {told(worst.auroc)}."
    )


def against_trivial(label: str, mine: Sequence[Spot]) -> Iterator[str]:
    """Yields where it is better and where worse than the trivial baseline on the same images."""
    paired = [spot for spot in mine if OVER in spot.cell.metrics and math.isfinite(spot.cell.metrics[OVER].value)]
    if not paired:
        yield f"There {label} could not be compared with {TRIVIAL}, image by image."
        return
    below = [spot for spot in paired if lies_below(spot.cell)]
    above = [spot for spot in paired if spot.cell.metrics[OVER].low > 0]
    undecided = len(paired) - len(below) - len(above)
    below.sort(key=lambda spot: spot.cell.metrics[OVER].value)
    where = listed([f"{spot.name} ({points(spot.cell.metrics[OVER])})" for spot in below])
    yield (
        f"Beside {TRIVIAL} there, {label} is better in {len(above)}, worse in {len(below)} and not to be told apart in "
        f"{undecided} of {counted(len(paired), 'cell')}, by paired 95 % intervals{'; worse: ' * bool(below)}{where}."
    )


def _against_others(results: Results, protocol: str, label: str, mine: Sequence[Spot]) -> Iterator[str]:
    """Where another detector has the higher AUROC."""
    beaten = []
    for spot in mine:
        rivals = [
            rival
            for rival in spots(results, protocol)
            if _method(results, rival.outcome.detector) not in (MBF, TRIVIAL)
            and (rival.cell.attack, rival.cell.source) == (spot.cell.attack, spot.cell.source)
            and rival.auroc.value > spot.auroc.value
        ]
        if rivals:
            best = max(rivals, key=lambda rival: rival.auroc.value)
            beaten.append(f"{best.outcome.detector} against {spot.name} ({told(best.auroc)})")
    if beaten:
        yield f"Higher than {label} there: {listed(beaten)}."


def _mead(results: Results, label: str) -> Iterator[str]:
    for outcome in results.of(MIXED):
        found = outcome.overall.get("mead@5%")
        if outcome.detector == label and found and math.isfinite(found.value):
            yield f"At 5 % false alarms {named(label)} catches all attacks on an image for {told(found)} of the images."


def _gaps_in_it(results: Results) -> Iterator[str]:
    """What is not there."""
    few = sum(not cell.metrics for outcome in results.outcomes for cell in outcome.cells)
    if few:
        yield f"Too few successful attacks to say anything: {counted(few, 'cell')} of the ledger."
    if results.failures:
        yield f"{counted(len(results.failures), 'trial')} failed; the errors stand under “What went wrong”."
    reduced = dict.fromkeys(outcome.detector for outcome in results.outcomes if outcome.reduced)
    if reduced:
        yield f"Run below their authors' settings, as the footnotes say: {listed(list(reduced))}."


def _method(results: Results, label: str) -> str:
    return next(outcome.method for outcome in results.outcomes if outcome.detector == label)
