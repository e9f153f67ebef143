"""The parts of a report in their order."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from benfourier.report import (
    ks_tables,
    layer_tables,
    paper_tables,
    setting_tables,
    study_tables,
    tables,
    transfer_tables,
)
from benfourier.report.results import Results
from benfourier.report.table import Section, Table
from benfourier.report.words import sentences

Maker = Callable[[Results, str], Iterable[Table]]
PROTOCOLS: tuple[tuple[str, str, str, Maker], ...] = (
    (
        "non-transfer",
        "Same attack in fit and test",
        "Each detector is fitted to one attack and tested on other images under the same attack. An estimate stands "
        "with its 95 % interval, drawn by source image.",
        tables.same_attack,
    ),
    (
        "attack-transfer",
        "Another attack than in the fit",
        "Each detector is fitted to the attack of the row and tested on the attack of the column.",
        transfer_tables.matrices,
    ),
    (
        "data-transfer",
        "Another source of images than in the fit",
        "Fitted to images of one source, tested on images of another with the same classes.",
        tables.elsewhere,
    ),
    (
        "strength-transfer",
        "Another strength than in the fit",
        "Boundary attacks stop at the nearest adversarial image; the others go on to a fixed distance or confidence. "
        "Fits to these are also tested on other images under the same strength.",
        transfer_tables.strengths,
    ),
    (
        "mixed",
        "All attacks together",
        "Fitted to all attacks at once, tested on each, and on all of them at once.",
        tables.mixed,
    ),
)


FEATURES = (
    "Mean (line) and standard deviation (band) of every MBF number: one panel per layer, the order n to the right. "
    "Where the bands of clean and adversarial images part, the detector has something to go by."
)
KS = "Kolmogorov-Smirnov tests, as in the paper; with many images a small p means little, so see the effect size D."
LAYERS = (
    "The theory is about generalized Gaussian noise. Here is how far the responses are from it, and what mbf makes of "
    "such noise."
)


def title(results: Results) -> str:
    """Returns the heading of a report."""
    return " ".join(["Detection of adversarial images", *([f"({results.runs[-1].name})"] if results.runs else [])])


def sections(results: Results) -> tuple[Section, ...]:
    """Returns the parts that have something to show."""
    drawn = {"features"} if results.profiles else set()
    drawn |= {"examples"} if results.pictures else set()
    made = [*_protocols(results), *_studies(results)]
    return tuple(section for section in made if section.tables or section.said or section.id in drawn)


def _protocols(results: Results) -> Iterator[Section]:
    said = sentences(results) if results.outcomes else ("This ledger holds no finished trial.",)
    yield Section("words", "In plain words", "", said=said)
    for name, title, intro, make in PROTOCOLS:
        yield Section(name, title, intro, tuple(_of_all_sources(results, make)))


def _of_all_sources(results: Results, make: Maker) -> Iterator[Table]:
    """Tables of every source; those of a second one are named after it."""
    for place, source in enumerate(results.sources, 1):
        for table in make(results, source):
            yield table if place == 1 else replace(table, id=f"{table.id}-{place}", title=f"{table.title}, {source}")


def _studies(results: Results) -> Iterator[Section]:
    yield Section("features", "The features", FEATURES)
    yield Section("ks", "Do the distributions differ?", KS, tuple(ks_tables.ks(results)))
    yield Section("layers", "Are responses generalized Gaussian?", LAYERS, tuple(layer_tables.layers(results)))
    yield Section("costs", "What it costs", "", tuple(study_tables.costs(results)))
    yield Section("examples", "The adversarial images", "", tuple(study_tables.crafted(results)))
    yield Section("failures", "What went wrong", "", tuple(setting_tables.failures(results)))
    made = (*setting_tables.settings(results), *setting_tables.trials(results))
    yield Section("settings", "The settings that made this", "", made)
    paper = results.paper("")
    said = (f"Numbers of the paper: {paper.citation}.", *(f"A slip in it, it seems: {slip}" for slip in paper.slips()))
    yield Section("paper", "The paper", "", tuple(paper_tables.rivals(results)), said)
