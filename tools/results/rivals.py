"""The paper's comparison with C1&C2t/u, by learning rate of the attack, beside our cells of the same rate."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from benfourier.report.entries import number, percent
from benfourier.report.paper import Paper, Printed, guess
from benfourier.report.results import ALONE
from benfourier.report.table import MISSING, NOTHING, Entry, Row, Table
from benfourier.store.records import Crafted, Estimate, Outcome
from tools.results.experiments import Experiment

DATABASE = "cifar10-vgg19"  # as the paper's numbers call it
ATTACKS = {"cw": "cw-l2", "pgd": "r-pgd"}
STEPS = 30  # R-PGD's step is eps / 30 unless told otherwise
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
    """Yields all cells of the table, for an experiment with CIFAR-10 that has C1&C2t/u; else nothing."""
    outcomes = experiment.results.of(ALONE)
    if guess(experiment.source, "") != "cifar10" or not any(_id(outcome).startswith("c1c2") for outcome in outcomes):
        return
    for row in Paper("none").content["c1c2_by_learning_rate"]:
        for attack in ATTACKS:
            for rate, value in row[attack].items():
                ours = _ours(experiment, row["detector"], attack, float(rate))
                auroc, label = ours or (None, row["detector"])
                yield Rate(row["detector"], attack, rate, Printed((value,)), auroc, label)


def rate_tables(experiment: Experiment) -> Iterator[Table]:
    """Yields the comparison and its costs; nothing if the experiment has no such cell."""
    found = list(rates(experiment))
    if not any(rate.auroc for rate in found):
        return
    columns = tuple(dict.fromkeys(f"{rate.attack} at {rate.rate}" for rate in found))
    rows = tuple(
        Row(detector, tuple(_entry(rate) for rate in found if rate.detector == detector))
        for detector in dict.fromkeys(rate.detector for rate in found)
    )
    notes = (NOTE, f"Ours: {experiment.network}.")
    yield Table("c1c2", "AUROC beside C1&C2t/u, %", "detector", columns, rows, notes, compared=True)
    printed = Paper("none").content["feature_milliseconds"][DATABASE]
    times = {cost.method: cost.features_ms for cost in reversed(experiment.results.costs) if cost.method in printed}
    rows = tuple(Row(name, (number(ms, ".2f", Printed((printed[name],))),)) for name, ms in times.items())
    if rows:
        yield Table("c1c2-costs", "Milliseconds per image beside C1&C2t/u", "detector", ("milliseconds",), rows)


def _entry(rate: Rate) -> Entry:
    return percent(rate.auroc, rate.printed) if rate.auroc else Entry(NOTHING, paper=rate.printed, emphasis=MISSING)


def _ours(experiment: Experiment, detector: str, attack: str, rate: float) -> tuple[Estimate, str] | None:
    made = {crafted.attack for crafted in experiment.results.crafted if _rate(crafted, ATTACKS[attack]) == rate}
    outcomes = sorted(experiment.results.of(ALONE), key=lambda outcome: outcome.detector != outcome.method)
    for outcome in outcomes:  # plain settings before special ones
        for cell in outcome.cells:
            if _id(outcome) == detector and cell.attack in made and "auroc" in cell.metrics:
                return cell.metrics["auroc"], outcome.detector
    return None


def _id(outcome: Outcome) -> str:
    criteria = outcome.options.get("criteria", "all")
    return outcome.method if criteria == "all" or ":" in outcome.method else f"{outcome.method}:{criteria}"


def _rate(made: Crafted, method: str) -> float:
    """The learning rate or step of an attack; NaN for another one, or one that goes beyond the boundary."""
    if made.method != method or made.options.get("confidence"):
        return math.nan
    told = made.options.get("lr", made.options.get("step"))
    return float(told) if told is not None else round(float(made.options.get("eps", math.nan)) / STEPS, 9)
