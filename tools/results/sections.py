"""One experiment: its section of docs/results.md, and its page in docs/results/ with everything."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benfourier.report.counterparts import papers_mbf
from benfourier.report.markdown import safe, table_lines
from benfourier.report.sections import sections
from benfourier.report.table import Section, Table, blocks
from tools.results.differences import compared, differences, explained
from tools.results.drawing import Drawing
from tools.results.experiments import Experiment
from tools.results.facts import facts, pictures
from tools.results.notes import Notes
from tools.results.rivals import rate_tables

PARTS = (
    "non-transfer",
    "attack-transfer",
    "data-transfer",
    "strength-transfer",
    "mixed",
    "features",
    "layers",
    "ks",
    "costs",
)
OPEN = {
    *(f"{part}-{metric}" for part in ("non-transfer", "data-transfer") for metric in ("auroc", "accuracy")),
    *("non-transfer-over", "attack-transfer-auroc-1", "attack-transfer-accuracy-1", "mixed-auroc", "mixed-overall"),
    *("control", "costs", "crafted", "failures", "c1c2", "sure"),
}
KEPT = {*OPEN, "layers-test", "twins"}  # on the short page, whether the paper has its like or not
FOLDS = {
    "attack-transfer-auroc": "AUROC, detector by detector",
    "attack-transfer-accuracy": "Accuracy, detector by detector",
    **dict.fromkeys(("non-transfer-aupr", "tpr-", "fpr-"), "AUPR, rates of detection and of false alarms"),
}


@dataclass(frozen=True)
class Extent:
    """How much is said, and from where.

    Args:
        whole: everything; else only the tables that matter most and those with numbers of the paper.
        docs: from the page to docs/.
    """

    whole: bool
    docs: str

    @property
    def ledgers(self) -> str:
        """From the page to the folder of ledgers."""
        return f"{self.docs}../experiments/results"


SHORT, WHOLE = Extent(whole=False, docs=""), Extent(whole=True, docs="../")


def experiment_lines(
    experiment: Experiment, notes: Notes, drawings: Sequence[Drawing], single: Sequence[Table], extent: Extent
) -> Iterator[str]:
    """Yields the section, or the page.

    Args:
        experiment: of which.
        notes: written by hand.
        drawings: its figures.
        single: tables made of the scores of single images.
        extent: how much of it.
    """
    results, links = experiment.results, extent.ledgers
    parts = {section.id: section for section in sections(results)}
    yield from _heading(experiment, "", 1 if extent.whole else 2, experiment.name)
    yield from (["", notes.about[experiment.name]] if experiment.name in notes.about else [])
    yield from ("", *facts(experiment, links))
    yield _elsewhere(experiment, extent)
    yield from _tables(parts["examples"].tables if "examples" in parts else (), extent)
    shown = list(pictures(experiment, links))
    yield from _fold("Examples", shown) if shown else ()
    for part in PARTS:
        drawn = [drawing for drawing in drawings if drawing.figure.section == part]
        if part in parts:
            yield from _part(experiment, parts[part], drawn, extent)
        if part == "non-transfer":
            yield from _tables(single, extent)
    beside = list(rate_tables(experiment))
    if beside:
        yield from _heading(experiment, "c1c2", 3 - extent.whole, f"{experiment.name}: beside C1&C2t/u")
        yield from _tables(beside, extent)
    if not extent.whole:
        yield from _differences(experiment, notes)
    if "failures" in parts:
        yield from _part(experiment, parts["failures"], [], extent)
    if extent.whole:
        yield from _fold("All of it in plain words", [f"- {safe(sentence)}" for sentence in parts["words"].said])


def figure_lines(drawings: Sequence[Drawing], extent: Extent) -> Iterator[str]:
    """Yields pictures with their captions; those that are folded away on the report's page are so here, or left out."""
    for drawing in drawings:
        figure = drawing.figure
        caption = f"*{safe(figure.title)}.* {safe(figure.caption)}"
        shown = [f"![{safe(figure.title)}]({extent.docs}figures/{drawing.file})", "", caption]
        if not figure.folded:
            yield from ("", *shown)
        elif extent.whole:
            yield from _fold(figure.title, shown)


def _elsewhere(experiment: Experiment, extent: Extent) -> str:
    """Where the other of the two stands."""
    if extent.whole:
        return f"- Beside the paper, with reasons: [results.md]({extent.docs}results.md#{experiment.name})."
    return f"- All its tables: [results/{safe(experiment.name)}.md](results/{experiment.name}.md)."


def _part(experiment: Experiment, section: Section, drawn: Sequence[Drawing], extent: Extent) -> Iterator[str]:
    title = section.title[0].lower() + section.title[1:]
    content = [*figure_lines(drawn, extent), *_tables(section.tables, extent, _beside_paper(experiment))]
    if content:
        yield from _heading(experiment, section.id, 3 - extent.whole, f"{experiment.name}: {title}")
        yield from (["", safe(section.intro)] if section.intro else [])
        yield from content


def _heading(experiment: Experiment, part: str, level: int, text: str) -> Iterator[str]:
    anchor = experiment.anchor(part) if part else experiment.name
    yield from ("", f'<a id="{anchor}"></a>', "", f"{'#' * level} {safe(text)}")


def _beside_paper(experiment: Experiment) -> tuple[str, ...]:
    """Ids of the matrices of the mbf that the paper's numbers stand beside."""
    label, detectors = papers_mbf(experiment.results), experiment.results.detectors
    places = [place for place, detector in enumerate(detectors, 1) if detector == label]
    return tuple(f"attack-transfer-{metric}-{place}" for metric in ("auroc", "accuracy") for place in places)


def _tables(tables: Sequence[Table], extent: Extent, compared: Sequence[str] = ()) -> Iterator[str]:
    wanted = [table for table in tables if extent.whole or table.id in KEPT or table.has_paper]
    for fold, group in blocks([_folded(table, compared) for table in wanted]):
        lines = [part for table in group for part in ("", *table_lines(table))]
        yield from _fold(fold, lines[1:]) if fold else lines


def _folded(table: Table, compared: Sequence[str]) -> Table:
    """A table that is folded away unless it is among the few that matter most."""
    if table.id in OPEN or (table.id in compared and table.has_paper):
        return replace(table, fold="")
    return replace(table, fold=next((fold for start, fold in FOLDS.items() if table.id.startswith(start)), table.title))


def _fold(heading: str, lines: Sequence[str]) -> tuple[str, ...]:
    return ("", f"<details><summary>{safe(heading)}</summary>", "", *lines, "", "</details>")


def _differences(experiment: Experiment, notes: Notes) -> Iterator[str]:
    count, found = compared(experiment), differences(experiment)
    if not count:
        return
    yield from _heading(experiment, "differences", 3, f"{experiment.name}: differences above two points")
    yield from (
        "",
        f"{len(found)} of {count} numbers lie more than 2 points from the paper's; milliseconds and p are left out.",
    )
    if found:
        yield from ("", *explained(found, notes.difference))
