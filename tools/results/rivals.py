"""The paper's comparison with C1&C2t/u, by learning rate of the attack, beside our cells of the same rate."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from benfourier.report.counterparts import known_as
from benfourier.report.entries import percent
from benfourier.report.paper import BESIDE_C1C2, Paper, Printed
from benfourier.report.results import ALONE
from benfourier.report.table import MISSING, NOTHING, Entry, Row, Table
from benfourier.store.records import Crafted, Estimate
from tools.results.experiments import Experiment

ATTACKS = {"cw": "cw-l2", "pgd": "r-pgd"}
NOTE = (
    "By learning rate of the attack: that of Adam for cw, the step for pgd. The paper's caption says MNIST, its text "
    "says CIFAR-10 with VGG-19."
)


@dataclass(frozen=True)
class Rate:
    """A cell of the paper's table, and ours.

    Args:
        detector: id.
        attack: cw or pgd.
        rate: as printed.
        printed: the paper's AUROC.
        auroc: ours; None if there is none.
        label: of our detector.
    """

    detector: str
    attack: str
    rate: str
    printed: Printed
    auroc: Estimate | None
    label: str


def rates(experiment: Experiment) -> Iterator[Rate]:
    """Yields all cells of the table, for an experiment that stands beside it; else nothing."""
    if experiment.database != BESIDE_C1C2:
        return
    for row in Paper("none").content["c1c2_by_learning_rate"]:
        for attack in ATTACKS:
            for rate, value in row[attack].items():
                ours = _ours(experiment, row["detector"], attack, float(rate))
                auroc, label = ours or (None, row["detector"])
                yield Rate(row["detector"], attack, rate, Printed((value,)), auroc, label)


def rate_tables(experiment: Experiment) -> Iterator[Table]:
    """Yields the comparison; nothing if the experiment has no such cell."""
    found = list(rates(experiment))
    if not any(rate.auroc for rate in found):
        return
    columns = tuple(dict.fromkeys(f"{rate.attack} at {rate.rate}" for rate in found))
    rows = tuple(
        Row(detector, tuple(_entry(rate) for rate in found if rate.detector == detector))
        for detector in dict.fromkeys(rate.detector for rate in found)
    )
    labels = {rate.detector: rate.label for rate in found if rate.auroc and rate.label != rate.detector}
    ours = [f"Ours: {experiment.network}", *(f"{detector} is “{label}”" for detector, label in labels.items())]
    notes = (NOTE, f"{'; '.join(ours)}.")
    yield Table("c1c2", "AUROC beside C1&C2t/u, %", "detector", columns, rows, notes, compared=True)


def _entry(rate: Rate) -> Entry:
    return percent(rate.auroc, rate.printed) if rate.auroc else Entry(NOTHING, paper=rate.printed, emphasis=MISSING)


def _ours(experiment: Experiment, detector: str, attack: str, rate: float) -> tuple[Estimate, str] | None:
    results = experiment.results
    made = {crafted.attack for crafted in results.crafted if _rate(crafted, ATTACKS[attack]) == rate}
    newest = reversed(results.of(ALONE))
    for outcome in sorted(newest, key=lambda outcome: outcome.detector != outcome.method):  # plain settings first
        for cell in outcome.cells:
            if known_as(results, outcome) == detector and cell.attack in made and "auroc" in cell.metrics:
                return cell.metrics["auroc"], outcome.detector
    return None


def _rate(made: Crafted, method: str) -> float:
    """The learning rate or step given to an attack; NaN for another one, or one that goes beyond the boundary."""
    if made.method != method or made.options.get("confidence"):
        return math.nan
    told = made.options.get("lr", made.options.get("step"))
    return float(told) if told is not None else math.nan
