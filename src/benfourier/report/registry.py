"""What a report is made of: sections, and the functions that fill them with sentences, tables, figures and pictures.

A function with `@sentences`, `@table`, `@figure` or `@picture` is all that a new part of a report needs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

from benfourier.report.results import Results
from benfourier.report.table import Table, plural
from benfourier.store.records import Picture
from benfourier.store.vocabulary import ProtocolName

Axes = Any  # matplotlib.axes.Axes; only drawing.py imports matplotlib
SERIES_COLOURS = 8  # of series in the style sheet
Scale = tuple[str, str, tuple[str, ...]]  # words for the two ends of a scale of colours, and the colours between
DASHES = ("", "5 2", "1.5 1.5", "7 2 1.5 2")


class Audience(StrEnum):
    """Who a report is for."""

    TERMINAL = "terminal"  # what fits on a screen
    DOCS = "docs"  # docs/results.md
    FULL = "full"  # everything: the page, Markdown, JSON and --full


TERMINAL, DOCS, FULL = Audience
EVERYONE = frozenset(Audience)
PAGE_AND_DOCS = frozenset({DOCS, FULL})


@dataclass(frozen=True)
class Palette:
    """Colours of a drawing."""

    ink: str  # of text
    muted: str  # of what matters less
    line: str  # of axes and grids
    page: str  # of the background
    series: tuple[str, ...]  # of curves, in order


@dataclass(frozen=True)
class LineStyle:
    """How one series is drawn: by colour and by dashes, so that it can be told without colours."""

    label: str  # of the series
    colour: int  # its place among the series' colours of a palette
    dashes: str  # as SVG has them; empty for a whole line

    def keywords(self, palette: Palette) -> dict[str, Any]:
        """Returns matplotlib's keywords for a line."""
        dashes = [float(part) for part in self.dashes.split()]
        return {"color": palette.series[self.colour], "linestyle": (0, dashes) if dashes else "-"}


def line_styles(labels: Iterable[str]) -> dict[str, LineStyle]:
    """Returns a style for every label; when the colours come again, they have other dashes."""
    return {
        label: LineStyle(label, place % SERIES_COLOURS, DASHES[(place + place // SERIES_COLOURS) % len(DASHES)])
        for place, label in enumerate(labels)
    }


@dataclass(frozen=True)
class Panel:
    """One picture of a figure."""

    title: str  # above it
    alt: str  # what it shows, for readers who cannot see it
    draw: Callable[[Axes, Palette], None]  # called each time it is shown, in the colours of that medium
    size: tuple[float, float] = (3.3, 2.7)  # width and height in inches
    margins: tuple[float, float, float, float] = (0.62, 0.12, 0.42, 0.08)  # left, right, bottom and top, in inches


@dataclass(frozen=True)
class Figure:
    """Panels that belong together."""

    id: str  # short and without spaces, its own in a report
    title: str  # above all
    caption: str  # how to read it
    panels: tuple[Panel, ...]  # in order
    legend: tuple[LineStyle, ...] = ()  # of all panels
    is_folded: bool = False  # on the page, shown only when asked for
    scale: Scale | None = None  # of the panels' colours, if they have one


@dataclass(frozen=True)
class Section:
    """A part of a report."""

    id: str  # as that of a table
    title: str  # its heading
    intro: str  # what it is about
    sentences: tuple[str, ...] = ()  # what the numbers say
    tables: tuple[Table, ...] = ()  # in order
    figures: tuple[Figure, ...] = ()  # in order
    pictures: tuple[Picture, ...] = ()  # example images, whose files lie beside the ledger


@dataclass(frozen=True)
class Report:
    """All that is shown of a ledger to an audience."""

    title: str  # its heading
    lead: str  # what was tested, in a line
    sections: tuple[Section, ...]  # in order, without empty ones

    @property
    def tables(self) -> dict[str, Table]:
        """All tables by id."""
        return {table.id: table for section in self.sections for table in section.tables}

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures."""
        return tuple(figure for section in self.sections for figure in section.figures)


SECTIONS: Mapping[str, tuple[str, str]] = {
    "summary": ("In short", ""),
    **{protocol: (protocol.title, protocol.question) for protocol in ProtocolName},
    "features": (
        "The features",
        "Mean of every MBF feature: one panel per layer, the order n to the right. Where the line of an attack leaves "
        "the band of clean images, the feature helps the detector.",
    ),
    "ks": (
        "Do the distributions differ?",
        "Kolmogorov-Smirnov tests, as in the paper. With many images even a small difference has a small p; the "
        "effect size D says how large it is.",
    ),
    "layers": (
        "Are activations generalized Gaussian?",
        "The theory is about generalized Gaussian noise. These tables show how far the activations are from it, and "
        "what mbf makes of such noise.",
    ),
    "costs": ("Costs", ""),
    "attacks": ("The adversarial images", ""),
    "failures": ("Failures", ""),
    "settings": ("Settings", ""),
    "paper": ("The paper", ""),
}
F = TypeVar("F", bound=Callable[..., Iterable[Any]])


class ReportPart(NamedTuple):
    """A function that fills a section for some audiences."""

    section: str
    audiences: frozenset[Audience]
    make: Callable[[Results], Iterable[Any]]


class ReportParts(dict[str, ReportPart]):
    """Such functions by name; a call is a decorator that adds one: @table("costs", section="costs")."""

    def __call__(
        self, name: str, *, section: str, audiences: frozenset[Audience] = frozenset({FULL}), **keywords: Any
    ) -> Callable[[F], F]:
        """Returns a decorator that adds a function, which is called with the results and these keywords."""
        assert section in SECTIONS, section
        assert name not in self, name

        def add(make: F) -> F:
            self[name] = ReportPart(section, audiences, partial(make, **keywords))
            return make

        return add

    def of(self, results: Results, section: str, audience: Audience) -> tuple[Any, ...]:
        """Returns all that the functions of a section make for an audience; tables without rows are left out."""
        parts = [part for part in self.values() if part.section == section and audience in part.audiences]
        items = (item for part in parts for item in part.make(results))
        return tuple(item for item in items if not isinstance(item, Table) or item.rows)


sentences, table, figure, picture = ReportParts(), ReportParts(), ReportParts(), ReportParts()


def build(results: Results, audience: Audience = FULL) -> Report:
    """Returns the report of a ledger for an audience; figures are drawn only when they are shown."""
    sections = []
    for name, words in SECTIONS.items():
        content = [parts.of(results, name, audience) for parts in (sentences, table, figure, picture)]
        if any(content):
            sections.append(Section(name, *words, *content))
    detectors, attacks = plural(len(results.detectors), "detector"), plural(len(results.attacks), "attack")
    lead = [f"{detectors}, {attacks}, {plural(len(results.outcomes), 'trial')}"]
    lead = [f"Data: {', '.join(results.sources)}", *lead] if results.sources else lead
    plan = ""
    for run in results.runs[-1:]:
        plan = f" ({run.name})"
        scale = [f"Scale of the plan: {run.scale}"] if run.scale != "here" else []
        lead = [f"Network: {results.network}", *lead, *scale, run.date[:10]]
    return Report(f"Detection of adversarial images{plan}", f"{'. '.join(lead)}.", tuple(sections))
