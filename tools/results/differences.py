"""Numbers that lie more than two points from the paper's, with the reasons for it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from benfourier.report.counterparts import known_as
from benfourier.report.gaps import NEAR, gaps
from benfourier.report.markdown import safe
from benfourier.report.paper import Printed
from benfourier.report.results import GAN, Results
from benfourier.report.spots import counted, told
from benfourier.store.records import Estimate, Outcome
from tools.results.experiments import Experiment
from tools.results.notes import Note, Place, closest
from tools.results.rivals import rates

CHANCE = "The paper's number lies inside the 95 % interval of ours, so that the difference may be chance."
METRICS = {"auroc": "AUROC", "accuracy": "accuracy"}


@dataclass(frozen=True)
class Difference:
    """One of our numbers far from the paper's.

    Args:
        place: where it stands.
        points: ours less the paper's.
        words: both numbers.
        inside: what the paper prints lies inside the interval of ours.
    """

    place: Place
    points: float
    words: str
    inside: bool

    @property
    def cell(self) -> str:
        """Its place in a table."""
        place = self.place
        crossed = place["fitted"] != place["attack"] and place["table"] == "attack-transfer"
        attack = f"{place['fitted']} → {place['attack']}" if crossed else place["attack"]
        return " ".join([attack, *([f"at {place['rate']}"] if "rate" in place else [])])

    @property
    def row(self) -> str:
        """The row or matrix that it stands in."""
        place = self.place
        effort = f" beside {place['effort']} in the paper" if "effort" in place else ""
        return f"{place['table']}, {METRICS[place['metric']]}, {place['detector']}{effort}"


def differences(experiment: Experiment) -> tuple[Difference, ...]:
    """Returns all of an experiment, table by table, the largest of a row first."""
    return tuple(difference for difference in _all(experiment) if abs(difference.points) > NEAR)


def compared(experiment: Experiment) -> int:
    """Returns how many numbers have one of the paper's beside them, milliseconds and p left out."""
    return sum(1 for _ in _all(experiment))


def reason(difference: Difference, notes: Sequence[Note]) -> str:
    """Returns what was written by hand of it, or that it may be chance; nothing if there is no reason yet."""
    note = closest(notes, difference.place)
    return note.why if note else CHANCE if difference.inside else ""


def explained(found: Sequence[Difference], notes: Sequence[Note]) -> Iterator[str]:
    """Yields lines of Markdown: every reason with its cells, then those that have none."""
    by_reason: dict[str, list[Difference]] = {}
    for difference in found:
        by_reason.setdefault(reason(difference, notes), []).append(difference)
    for why in sorted(by_reason, key=lambda why: (why == CHANCE) + 2 * (not why)):
        yield f"- {why or '**Not explained yet.**'} ({counted(len(by_reason[why]), 'cell')})"
        yield from ("", "  <details><summary>The cells</summary>", "")
        yield from (f"  - {line}" for line in _rows(by_reason[why]))
        yield from ("", "  </details>")


def _rows(found: Iterable[Difference]) -> Iterator[str]:
    rows: dict[str, list[Difference]] = {}
    for difference in found:
        rows.setdefault(difference.row, []).append(difference)
    for row, cells in rows.items():
        listed = sorted(cells, key=lambda cell: -abs(cell.points))
        told = "; ".join(f"{safe(cell.cell)} {cell.points:+.1f} ({safe(cell.words)})" for cell in listed)
        yield f"{safe(row)}: {told}"


def _all(experiment: Experiment) -> Iterator[Difference]:
    results = experiment.results
    for label in results.detectors:
        for gap in gaps(results, label):
            outcome, cell = gap.spot.outcome, gap.spot.cell
            place = {"experiment": experiment.name, "table": outcome.protocol, "metric": gap.metric}
            place |= {"detector": label, "method": outcome.method, "attack": results.method_of(cell.attack)}
            place |= {"fitted": results.method_of(outcome.fitted[0])} if outcome.fitted else {"fitted": ""}
            place |= _effort(results, outcome)
            yield _difference(place, cell.metrics[gap.metric], gap.printed)
    for rate in rates(experiment):
        if rate.auroc is not None:
            place = {"experiment": experiment.name, "table": "c1c2", "metric": "auroc", "detector": rate.label}
            place |= {"method": rate.detector, "attack": rate.attack, "fitted": rate.attack, "rate": rate.rate}
            yield _difference(place, rate.auroc, rate.printed)


def _effort(results: Results, outcome: Outcome) -> Place:
    """Iterations × runs of the paper's Defense-GAN, if it is one."""
    known = known_as(results, outcome)
    return {"effort": results.paper(outcome.source).gan_effort(known)} if known.startswith(GAN) else {}


def _difference(place: Place, ours: Estimate, printed: Printed) -> Difference:
    inside = all(100 * ours.low <= value <= 100 * ours.high for value in printed.values)
    return Difference(place, printed.gap(100 * ours.value), f"{told(ours)}, paper {printed}", inside)
