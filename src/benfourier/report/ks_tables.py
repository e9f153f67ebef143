"""Tables of the Kolmogorov-Smirnov studies, beside the paper's p."""

import math
from collections.abc import Iterator, Mapping, Sequence

from benfourier.report.entries import number
from benfourier.report.paper import SOURCES
from benfourier.report.results import Results
from benfourier.report.table import Entry, Row, Table
from benfourier.store.records import KsResult

H1, H2 = "h1", "h2"
TITLES = {
    H1: "H1: posteriors follow a generalized Gaussian distribution",
    H2: "H2: features of two kinds of images follow one distribution",
    SOURCES: "H2: features of two sets of images follow one distribution",
}
MORE = {
    "p-exact": "p, exact",
    "p-bootstrap": "p, bootstrap",
    "p-any-shape": "p, any shape",
    "p-adjusted": "p, Holm",
    "rejected": "rejected, %",
}
H1_NOTE = (
    "A distribution fitted to the same numbers, as here, makes p and the exact p too large. That of the bootstrap is "
    "valid, and that of any shape also where so few numbers tell little of the shape."
)
H2_NOTE = "p: mean over the dimensions, as in the paper."
HOLM_NOTE = (
    "Holm: the smallest p after correction for the number of tests. Rejected: share of the tests below 0.05 after it."
)


def ks(results: Results) -> Iterator[Table]:
    """Yields a table per hypothesis, one row per comparison."""
    for name, title in TITLES.items():
        found = [result for result in results.ks if _hypothesis(result) == name]
        if found:
            yield _table(results, name, title, found)


def _hypothesis(result: KsResult) -> str:
    return result.study if result.study in (H1, SOURCES) else H2


def _table(results: Results, name: str, title: str, found: Sequence[KsResult]) -> Table:
    more = [key for key in MORE if any(key in result.more for result in found)]
    rows = tuple(Row(_name(result), _entries(results, result, more)) for result in found)
    notes = [H1_NOTE if name == H1 else H2_NOTE]
    if "p-adjusted" in more or "rejected" in more:
        notes.append(HOLM_NOTE)
    notes.append("D: mean effect size. n: images of the smaller set.")
    if any(row.entries[0].paper for row in rows):
        notes.append(f"Beside ours: the paper's p for {results.paper(_data(results, found[0])).database}.")
    else:
        notes.append("The paper has no counterpart.")
    return Table(f"ks-{name}", title, "images", ("p", *(MORE[key] for key in more), "D", "n"), rows, tuple(notes))


def _entries(results: Results, result: KsResult, more: Sequence[str]) -> tuple[Entry, ...]:
    split = result.source if result.study == SOURCES else result.split
    kind = "|".join(results.method_of(part) for part in result.kind.split("|"))
    printed = results.paper(_data(results, result)).ks(result.study, split, kind)
    shown = (_more(result.more, key) for key in more)
    return (number(result.p, ".3f", printed), *shown, number(result.distance, ".3f"), number(result.images, "d"))


def _more(figures: Mapping[str, float], key: str) -> Entry:
    value = figures.get(key, math.nan)
    return number(100 * value, ".0f") if key == "rejected" else number(value, ".3f")


def _name(result: KsResult) -> str:
    where = result.source if result.study == SOURCES else f"{result.source}, {result.split}"
    return f"{result.kind.replace('|', ' and ')}: {where.replace('|', ' and ')}"


def _data(results: Results, result: KsResult) -> str:
    """The data that a comparison is of; one between sources is named by their sides only."""
    return results.sources[0] if result.study == SOURCES and results.sources else result.source
