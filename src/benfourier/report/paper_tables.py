"""Tables of the paper that have no like of ours to stand beside, for whoever wants to compare by eye."""

from collections.abc import Iterator, Mapping
from typing import Any

from benfourier.report.entries import number
from benfourier.report.paper import Paper
from benfourier.report.results import Results
from benfourier.report.table import Entry, Row, Table

RIVALS = {"c1c2": "c1c2_by_learning_rate", "defense-gan": "mnist_defense_gan"}


def rivals(results: Results) -> Iterator[Table]:
    """Yields the paper's comparisons with C1&C2t/u and Defense-GAN, if the ledger has these detectors."""
    content = Paper("none").content
    methods = {outcome.method.partition(":")[0] for outcome in results.outcomes}
    if "c1c2" in methods:
        yield _by_learning_rate(content[RIVALS["c1c2"]])
    if "defense-gan" in methods:
        yield _by_effort(content[RIVALS["defense-gan"]])


def _by_learning_rate(rows: list[Mapping[str, Any]]) -> Table:
    rates = [(attack, rate) for attack in ("cw", "pgd") for rate in rows[0][attack]]
    made = tuple(Row(row["detector"], _numbers(row[attack][rate] for attack, rate in rates)) for row in rows)
    columns = tuple(f"{attack} at {rate}" for attack, rate in rates)
    note = "By learning rate of the attack. The caption says MNIST, the text says CIFAR-10 with VGG-19."
    return Table("paper-c1c2", "The paper's AUROC beside C1&C2t/u, %", "detector", columns, made, (note,))


def _by_effort(rows: list[Mapping[str, Any]]) -> Table:
    attacks = ("bim", "cw-l2", "deepfool", "r-pgd")
    made = tuple(Row(_effort(row), _numbers(row[attack] for attack in attacks)) for row in rows)
    return Table("paper-defense-gan", "The paper's AUROC beside Defense-GAN on MNIST, %", "detector", attacks, made)


def _effort(row: Mapping[str, Any]) -> str:
    return (
        f"{row['detector']}, {row['iterations']} iterations, {row['runs']} runs" if "runs" in row else row["detector"]
    )


def _numbers(values: Iterator[float]) -> tuple[Entry, ...]:
    return tuple(number(value, ".1f") for value in values)
