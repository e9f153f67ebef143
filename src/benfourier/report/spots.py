"""Cells with what stands round them, and how their numbers are told in a sentence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benfourier.report.counterparts import known_as
from benfourier.report.paper import Printed
from benfourier.report.results import ALONE, ELSEWHERE, MIXED, Results
from benfourier.report.transfer_tables import fitted_name
from benfourier.store.records import Cell, Estimate, Outcome

SHOWN = 4  # entries of a long list


@dataclass(frozen=True)
class Spot:
    """A cell with what stands round it."""

    outcome: Outcome
    cell: Cell

    @property
    def auroc(self) -> Estimate:
        """Its AUROC."""
        return self.cell.metrics["auroc"]

    @property
    def name(self) -> str:
        """Where it is, in words."""
        if self.outcome.protocol in (ALONE, MIXED, ELSEWHERE) or not self.outcome.fitted:
            return self.cell.attack
        return f"{fitted_name(self.outcome.fitted)} → {self.cell.attack}"


def spots(results: Results, protocol: str) -> tuple[Spot, ...]:
    """Returns all cells of a protocol whose AUROC is known."""
    return tuple(
        Spot(outcome, cell)
        for outcome in results.of(protocol)
        for cell in outcome.cells
        if "auroc" in cell.metrics and math.isfinite(cell.metrics["auroc"].value)
    )


def printed(results: Results, spot: Spot) -> dict[str, Printed]:
    """Returns the paper's numbers that stand beside a cell, by metric."""
    paper, detector = results.paper(spot.outcome.source), known_as(results, spot.outcome)
    attack = results.method_of(spot.cell.attack)
    found = {}
    for metric in ("auroc", "accuracy"):
        if spot.outcome.protocol == ALONE:
            number = paper.same_attack(metric, detector, attack)
        elif spot.outcome.protocol == ELSEWHERE:
            number = paper.elsewhere(metric, detector, attack)
        elif len(spot.outcome.fitted) == 1 and spot.outcome.fitted != (spot.cell.attack,):
            number = paper.transfer(metric, detector, results.method_of(spot.outcome.fitted[0]), attack)
        else:
            number = None
        if number and metric in spot.cell.metrics and math.isfinite(spot.cell.metrics[metric].value):
            found[metric] = number
    return found


def named(label: str) -> str:
    """Returns a label that can stand in a sentence."""
    return f"“{label}”" if "," in label or " " in label else label


def told(estimate: Estimate) -> str:
    """Returns percent with the interval, if there is one."""
    low, high = 100 * estimate.low, 100 * estimate.high
    interval = f" ({low:.1f} to {high:.1f})" if math.isfinite(low) and math.isfinite(high) else ""
    return f"{100 * estimate.value:.1f} %{interval}"


def points(estimate: Estimate) -> str:
    """Returns a difference in points, with its interval."""
    return f"{100 * estimate.value:+.1f} points, {100 * estimate.low:+.1f} to {100 * estimate.high:+.1f}"


def counted(number: int, noun: str) -> str:
    """Returns "1 cell" or "2 cells"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def listed(parts: Sequence[str], between: str = ", ") -> str:
    """Returns a list in words; of a long one the first entries and the number of the others."""
    rest = len(parts) - SHOWN
    return between.join(parts[:SHOWN]) + (f"{between}and {rest} more" if rest > 0 else "")
