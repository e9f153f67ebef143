"""A report as one HTML file that needs nothing from outside."""

import base64
from importlib.resources import files
from pathlib import Path

from benfourier.errors import MissingExtraError
from benfourier.progress import bar
from benfourier.report import drawing
from benfourier.report.registry import Report
from benfourier.report.table import Table, blocks
from benfourier.version import __version__

WIDE_COLUMNS, WIDE_NAME = 4, 28  # a table with more columns or letters in a row's name gets the page's whole width
FIRST_SENTENCES = 5  # of a section; the others are folded away
PNG = b"\x89PNG\r\n\x1a\n"
MAX_PICTURE = 500_000  # bytes, so that a phone can open the page


def page(report: Report, ledger: Path, *, show_progress: bool | None = None) -> str:
    """Returns the whole page; pictures lie beside the ledger. Progress is shown as `progress.bar` does."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        message = "jinja2 is not installed, and the page needs it; pip install 'benfourier[report]'"
        raise MissingExtraError(message) from error
    package = files("benfourier.report")
    # every word of a ledger is escaped; the style sheet and the drawings are ours
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((package / "page.html").read_text(encoding="utf-8"))
    drawings = {}  # SVG of every panel, by id of its figure
    with bar(len(report.figures), "figures", show=show_progress) as advance:
        for figure in report.figures:
            panels = enumerate(figure.panels)
            drawings[figure.id] = tuple(drawing.svg(panel, f"{figure.id} {place}") for place, panel in panels)
            advance(1)
    return template.render(
        report=report,
        style=(package / "page.css").read_text(encoding="utf-8"),
        drawings=drawings,
        address=lambda name: _address(ledger.parent, name),
        first_sentences=FIRST_SENTENCES,
        blocks=blocks,
        is_wide=_is_wide,
        ledger=ledger.name,
        version=__version__,
    ).lstrip()


def _is_wide(table: Table) -> bool:
    return len(table.columns) > WIDE_COLUMNS or any(len(row.name) > WIDE_NAME for row in table.rows)


def _address(folder: Path, name: str) -> str:
    """A file as a data address; nothing if it is not below the folder, missing, too large or no PNG."""
    path, home = (folder / name).resolve(), folder.resolve()
    if not path.is_relative_to(home) or not path.is_file() or path.stat().st_size > MAX_PICTURE:
        return ""
    content = path.read_bytes()
    return "data:image/png;base64," + base64.b64encode(content).decode() if content.startswith(PNG) else ""
