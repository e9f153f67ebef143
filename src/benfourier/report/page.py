"""A report as one HTML file that needs nothing from outside."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from benfourier import __version__
from benfourier.errors import MissingExtraError
from benfourier.progress import bar
from benfourier.report.curves import roc_figures
from benfourier.report.figures import Figure
from benfourier.report.maps import cost_figures, heat_figures
from benfourier.report.profiles import profile_figures
from benfourier.report.results import Results
from benfourier.report.sections import sections, title
from benfourier.report.spots import counted
from benfourier.report.strengths import strength_figures
from benfourier.report.table import Table, blocks
from benfourier.report.thumbnails import thumbnails

WIDEST = 28  # letters of a row's name, in a table that shares the page's width
FIGURES = (roc_figures, heat_figures, strength_figures, profile_figures, cost_figures)


def page(results: Results, ledger: Path, *, show_progress: bool | None = None) -> str:
    """Returns the whole page.

    Args:
        results: of a ledger.
        ledger: its path; pictures lie beside it.
        show_progress: True or False to force a bar; None draws one only on a terminal.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError(
            "jinja2 is not installed, and the page is made with it; pip install 'benfourier[report]'"
        ) from error
    room = files("benfourier.report")
    # every word of a ledger is escaped; the style sheet and the figures are ours
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((room / "page.html").read_text(encoding="utf-8"))
    return template.render(
        title=title(results),
        lead=lead(results),
        style=(room / "page.css").read_text(encoding="utf-8"),
        sections=sections(results),
        blocks=blocks,
        numeric=Table.numeric,
        wide=wide,
        figures=tuple(_figures(results, show_progress)),
        thumbnails=tuple(thumbnails(results, ledger.parent)),
        ledger=ledger.name,
        version=__version__,
    ).lstrip()


def wide(table: Table) -> bool:
    """True if a table needs the width of the page."""
    return len(table.columns) > 4 or any(len(row.name) > WIDEST for row in table.rows)


def lead(results: Results) -> str:
    """Returns what was tested, in one line."""
    counts = (
        (len(results.detectors), "detector"),
        (len(results.attacks), "attack"),
        (len(results.outcomes), "trial"),
    )
    told = [", ".join(counted(count, noun) for count, noun in counts)]
    if results.sources:
        told = [f"Data: {', '.join(results.sources)}", *told]
    if results.runs:
        run = results.runs[-1]
        told = [f"Network: {run.network.get('name', 'unnamed')}", *told, f"Scale: {run.scale}", run.date]
    return ". ".join(told) + "."


def _figures(results: Results, show: bool | None) -> Iterator[Figure]:
    with bar(len(FIGURES), "figures", show=show) as advance:
        for make in FIGURES:
            yield from make(results)
            advance(1)
