"""The first table of the page, also the README's: mbf beside the paper and beside the trivial detector."""

import re
from collections.abc import Iterator, Sequence

from benfourier.report.counterparts import papers_mbf
from benfourier.report.markdown import line, safe
from benfourier.report.results import ALONE, MBF, TRIVIAL, cell_of
from benfourier.report.spots import told
from benfourier.report.table import NOTHING
from benfourier.store.records import Cell
from tools.results.differences import differences, reason
from tools.results.experiments import Experiment
from tools.results.facts import accuracy
from tools.results.notes import Note
from tools.results.summary import mbf_label
from tools.results.universal import to_beat

BLOCK = re.compile(r"(<!-- headline -->\n).*?(<!-- /headline -->)", re.DOTALL)
DATABASES = ("cifar10", "svhn", "imagenet-alexnet", "imagenet-vgg16", "mnist")
ATTACKS = ("bim", "r-pgd", "deepfool", "cw-l2")
BELOW = (
    "AUROC in per cent with 95 % intervals, fitted to and tested on the attack of the column, other images. Where mbf "
    "has two rows of ours, the second has the paper's settings."
)
FAR = "More than two points from the paper's:"
MORE = "All tables, every difference above two points and the figures: [docs/results.md](docs/results.md)."


def headline(experiments: Sequence[Experiment], notes: Sequence[Note] = ()) -> str:
    """Returns the lines between the README's markers; nothing while there is no number.

    Args:
        experiments: all of them.
        notes: reasons for differences.
    """
    table = headline_table(experiments, notes)
    universal = [f"One detector for all attacks. {sentence}\n" for sentence in to_beat(experiments)]
    lines = ["### Beside the paper", "", *table, "", *universal, MORE]
    return "\n".join(lines) + "\n" if table else ""


def headline_table(experiments: Sequence[Experiment], notes: Sequence[Note] = ()) -> list[str]:
    """Returns the table's lines, what it says, and why cells of it lie far from the paper's.

    Args:
        experiments: of which one per database is shown.
        notes: reasons for differences.
    """
    shown = headlined(experiments)
    rows = [row for experiment in shown for row in _rows(experiment)]
    head = [line("data, network", "detector", *(f"`{a}`" for a in ATTACKS)), line(*["---"] * (2 + len(ATTACKS)))]
    far = list(_far(shown, notes))
    return [*head, *rows, "", BELOW, *(["", FAR, "", *far] if far else [])] if rows else []


def headlined(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Returns the experiments of the table, one of each database."""
    first = {experiment.database: experiment for experiment in reversed(experiments) if any(_rows(experiment))}
    return [first[database] for database in DATABASES if database in first]


def labels_of(experiment: Experiment) -> list[str]:
    """Returns the settings of mbf that have a row, the paper's last."""
    results = experiment.results
    return [label for label in (mbf_label(results), papers_mbf(results)) if label]


def in_readme(page: str, text: str) -> str:
    """Returns the page with the text between its markers."""
    return BLOCK.sub(lambda block: block[1] + text + block[2], page)


def _rows(experiment: Experiment) -> Iterator[str]:
    results, paper = experiment.results, experiment.results.paper(experiment.source)
    outcomes = results.of(ALONE, experiment.source)
    labels = labels_of(experiment)
    cells = {label: [cell_of(outcomes, label, a, a) for a in ATTACKS] for label in (*labels, TRIVIAL)}
    if not any(any(cells[label]) for label in labels):
        return
    told = {f"`{label}`": [_told(found and found[1]) for found in cells[label]] for label in cells}
    trivial = told.popitem()
    printed = [paper.same_attack("auroc", MBF, attack) for attack in ATTACKS]
    told["`mbf` in the paper"] = [str(number) if number else NOTHING for number in printed]
    first = f"{experiment.database}, {safe(experiment.network)}{accuracy(experiment)}"
    for name, row in (*told.items(), trivial):
        yield line(first, name, *row)
        first = ""


def _far(shown: Sequence[Experiment], notes: Sequence[Note]) -> Iterator[str]:
    """Why cells of the table lie more than two points from the paper's, a reason each."""
    by_reason: dict[str, list[str]] = {}
    for experiment in shown:
        for difference in differences(experiment):
            place = difference.place
            mine = place["table"] == ALONE and place["metric"] == "auroc" and place["detector"] in labels_of(experiment)
            if mine and place["attack"] in ATTACKS:
                cell = (
                    f"{experiment.database}, `{place['detector']}` under {place['attack']} ({difference.points:+.1f})"
                )
                by_reason.setdefault(reason(difference, notes), []).append(cell)
    for why, cells in by_reason.items():
        yield f"- {'; '.join(cells)}: {why or '**not explained yet.**'}"


def _told(cell: Cell | None) -> str:
    if cell is None:
        return NOTHING
    return told(cell.metrics["auroc"]).replace(" %", "") if "auroc" in cell.metrics else "too few"
