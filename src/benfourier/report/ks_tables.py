"""Tables of the Kolmogorov-Smirnov studies, beside the paper's p."""

import math
from collections.abc import Iterator, Mapping, Sequence

from benfourier.report.entries import number
from benfourier.report.paper import SOURCES
from benfourier.report.results import Results
from benfourier.report.table import Entry, Row, Table
from benfourier.store.records import KsResult
from benfourier.theory.rates import clopper_pearson

H1, H2 = "h1", "h2"
TITLES = {
    H1: "H1: posteriors follow a generalized Gaussian distribution",
    H2: "H2: features of two kinds of images follow one distribution",
    SOURCES: "H2: features of two sets of images follow one distribution",
}
BOOTSTRAP, ANY_SHAPE = "bootstrap-below-0.05", "any-shape-below-0.05"
H1_MORE = {
    "p-exact": "p, exact",
    "p-bootstrap": "p, bootstrap",
    "p-any-shape": "p, any shape",
    BOOTSTRAP: "bootstrap below 0.05, %",
    ANY_SHAPE: "any shape below 0.05, %",
}
H2_MORE = {"p-exact": "p, exact", "p-adjusted": "p, Holm", "rejected": "rejected, %"}
SHARES = {BOOTSTRAP: ".1f", ANY_SHAPE: ".1f", "rejected": ".0f"}
CHANCE = 0.05
H1_NOTE = "p and the exact p are too large, since the distribution was fitted to the very numbers that are tested."
SHARES_NOTE = (
    "Bootstrap: p among samples of the fitted shape, each fitted again; too small where the shape is below 0.8. Any "
    "shape: the largest such p that any shape gives, valid whatever the shape. Below 0.05: share of the images with "
    "such a p; if H1 held, chance would give about 5 % for the bootstrap and at most 5 % for any shape."
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
    heads = H1_MORE if name == H1 else H2_MORE
    more = [key for key in heads if any(key in result.more for result in found)]
    rows = tuple(Row(_name(result), _entries(results, result, more)) for result in found)
    notes = [H1_NOTE, *_h1_notes(found)] if name == H1 else [H2_NOTE]
    if "p-adjusted" in more or "rejected" in more:
        notes.append(HOLM_NOTE)
    notes.append("D: mean effect size. n: images of the smaller set.")
    if any(row.entries[0].paper for row in rows):
        notes.append(f"Beside ours: the paper's p for {results.paper(_data(results, found[0])).database}.")
    else:
        notes.append("The paper has no counterpart.")
    return Table(f"ks-{name}", title, "images", ("p", *(heads[key] for key in more), "D", "n"), rows, tuple(notes))


def _entries(results: Results, result: KsResult, more: Sequence[str]) -> tuple[Entry, ...]:
    split = result.source if result.study == SOURCES else result.split
    kind = "|".join(results.method_of(part) for part in result.kind.split("|"))
    printed = results.paper(_data(results, result)).ks(result.study, split, kind)
    shown = (_more(result.more, key) for key in more)
    return (number(result.p, ".3f", printed), *shown, number(result.distance, ".3f"), number(result.images, "d"))


def _more(figures: Mapping[str, float], key: str) -> Entry:
    value = figures.get(key, math.nan)
    return number(100 * value, SHARES[key]) if key in SHARES else number(value, ".3f")


def _h1_notes(found: Sequence[KsResult]) -> Iterator[str]:
    """What the shares are, and what follows from them for H1."""
    told = [result for result in found if {BOOTSTRAP, ANY_SHAPE} <= result.more.keys()]
    against = [result for result in told if _beyond_chance(result, ANY_SHAPE)]
    doubtful = [result for result in told if result not in against and _beyond_chance(result, BOOTSTRAP)]
    rest = len(told) - len(against) - len(doubtful)
    parts = {
        "it does not hold in {}, where more images than chance gives are below 0.05 whatever the shape": len(against),
        "in {} it could hold only with heavier tails than those of the fits": len(doubtful),
        "in {} nothing speaks against it, which does not show it": rest,
    }
    if told:
        yield SHARES_NOTE
        verdict = "; ".join(part.format(f"{count} of {len(told)} rows") for part, count in parts.items() if count)
        yield f"What follows for H1: {verdict} (95 % intervals of the shares)."


def _beyond_chance(result: KsResult, key: str) -> bool:
    """True if the share of images is above that of chance in its whole interval."""
    share = result.more[key]
    return math.isfinite(share) and clopper_pearson(round(share * result.images), result.images)[0] > CHANCE


def _name(result: KsResult) -> str:
    where = result.source if result.study == SOURCES else f"{result.source}, {result.split}"
    return f"{result.kind.replace('|', ' and ')}: {where.replace('|', ' and ')}"


def _data(results: Results, result: KsResult) -> str:
    """The data that a comparison is of; one between sources is named by their sides only."""
    return results.sources[0] if result.study == SOURCES and results.sources else result.source
