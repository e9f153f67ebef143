"""The README's table: mbf beside the paper and beside the trivial detector."""

import re
from collections.abc import Iterator, Sequence

from benfourier.report.markdown import line, safe
from benfourier.report.results import ALONE, TRIVIAL, cell_of
from benfourier.report.spots import told
from benfourier.report.table import NOTHING
from benfourier.store.records import Cell
from tools.results.experiments import Experiment
from tools.results.facts import accuracy
from tools.results.summary import mbf_label

BLOCK = re.compile(r"(<!-- headline -->\n).*?(<!-- /headline -->)", re.DOTALL)
DATABASES = ("cifar10", "svhn", "mnist")
ATTACKS = ("bim", "cw-l2", "deepfool", "r-pgd")
END = (
    "AUROC in per cent with 95 % intervals, fitted to and tested on the attack of the column, other images. All "
    "tables, every difference above two points and the figures: [docs/results.md](docs/results.md)."
)


def headline(experiments: Sequence[Experiment]) -> str:
    """Returns the lines between the markers; nothing while there is no number."""
    rows = [row for experiment in experiments if experiment.database in DATABASES for row in _rows(experiment)]
    if not rows:
        return ""
    head = (line("data, network", "detector", *(f"`{a}`" for a in ATTACKS)), line(*["---"] * (2 + len(ATTACKS))))
    return "\n".join(["### Beside the paper", "", *head, *rows, "", END]) + "\n"


def in_readme(page: str, text: str) -> str:
    """Returns the page with the text between its markers."""
    return BLOCK.sub(lambda block: block[1] + text + block[2], page)


def _rows(experiment: Experiment) -> Iterator[str]:
    results, label = experiment.results, mbf_label(experiment.results)
    outcomes, paper = results.of(ALONE, experiment.source), results.paper(experiment.source)
    if label is None or not outcomes:
        return
    ours, trivial = ([cell_of(outcomes, name, a, a) for a in ATTACKS] for name in (label, TRIVIAL))
    if not any(ours):
        return
    printed = [paper.same_attack("auroc", "mbf", attack) for attack in ATTACKS]
    name = f"{experiment.database}, {safe(experiment.network)}{accuracy(experiment)}"
    yield line(name, "`mbf`", *(_told(found and found[1]) for found in ours))
    yield line("", "`mbf` in the paper", *(str(number) if number else NOTHING for number in printed))
    yield line("", f"`{TRIVIAL}`", *(_told(found and found[1]) for found in trivial))


def _told(cell: Cell | None) -> str:
    if cell is None:
        return NOTHING
    return told(cell.metrics["auroc"]).replace(" %", "") if "auroc" in cell.metrics else "too few"
