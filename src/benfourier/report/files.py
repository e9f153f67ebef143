"""From the file of a ledger to a report, and from a report to a file: Markdown, or one page without outside parts."""

import base64
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from benfourier.errors import MissingExtraError, OptionError, StoreError, check_choice
from benfourier.progress import bar
from benfourier.report import drawing, render
from benfourier.report.registry import Audience, Report, build
from benfourier.report.results import Results
from benfourier.report.table import Table, blocks
from benfourier.store.ledger import read
from benfourier.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template

FORMATS = ("html", "markdown")
WIDE_COLUMNS, WIDE_NAME = 4, 28  # a table with more columns or letters in a row's name gets the page's whole width
PNG = b"\x89PNG\r\n\x1a\n"
MAX_PICTURE = 500_000  # bytes, so that a phone can open the page


def read_report(ledger: str | PathLike[str], *, paper: str | None = None, audience: str = "full") -> Report:
    """Returns the report of a ledger.

    Args:
        ledger: the file that `benfourier.evaluate` wrote.
        paper: the paper's numbers to show beside, such as "cifar10", or "none"; guessed from the ledger by default.
        audience: "full", or "terminal" for what fits on a screen.
    """
    check_choice("audience", audience, Audience)
    results = Results.from_records(read(Path(ledger)), paper)
    if results.is_empty:
        raise StoreError(
            f"{ledger}: there are no results in this ledger; `benfourier evaluate` with its plan makes them"
        )
    return build(results, Audience(audience))


def write_report(report: Report, path: str | PathLike[str], ledger: str | PathLike[str], format: str = "html") -> None:  # noqa: A002
    """Writes a report to a file, whose folder is made if it is not there; pictures are read from beside the ledger.

    The format is "markdown", or "html" for one page with figures, which needs `pip install 'benfourier[report]'`.
    """
    check_choice("format", format, FORMATS)
    if Path(path).resolve() == Path(ledger).resolve():
        raise OptionError(f"{path}: this is the ledger, which a report must not replace; choose another file")
    text = page(report, Path(ledger)) if format == "html" else render.markdown(report)
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path}: the report cannot be written ({error}); choose another file") from error


def page(report: Report, ledger: Path, *, show_progress: bool | None = None) -> str:
    """Returns the whole page; pictures lie beside the ledger. Progress is shown as `progress.bar` does."""
    template = load_template("page.html")
    drawings = {}  # SVG of every panel, by id of its figure
    with bar(len(report.figures), "figures", show=show_progress) as advance:
        for figure in report.figures:
            panels = enumerate(figure.panels)
            drawings[figure.id] = tuple(drawing.svg(panel, f"{figure.id} {place}") for place, panel in panels)
            advance(1)
    drawings, rules = drawing.share_styles(drawings)
    style = (files("benfourier.report") / "page.css").read_text(encoding="utf-8")
    return template.render(
        report=report,
        style=f"{style}{rules}",
        drawings=drawings,
        address=lambda name: _address(ledger.parent, name),
        ledger=ledger.name,
        version=__version__,
    ).lstrip()


def load_template(name: str) -> "Template":
    """Returns the template of a page, which escapes every word that is not marked as safe."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        message = "jinja2 is not installed, and the page needs it; pip install 'benfourier[report]'"
        raise MissingExtraError(message) from error
    folder = files("benfourier.report")
    # every word of a ledger or a card is escaped; the style sheet and the drawings are ours
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
    )
    environment.globals.update(blocks=blocks, is_wide=_is_wide, is_text=_is_text)
    return environment.get_template(name)


def _is_wide(table: Table) -> bool:
    most = 1 if _is_text(table) else WIDE_COLUMNS
    return len(table.columns) > most or any(len(row.name) > WIDE_NAME for row in table.rows)


def _is_text(table: Table) -> bool:
    return not any(map(table.is_numeric, range(len(table.columns))))


def _address(folder: Path, name: str) -> str:
    """A file as a data address; nothing if it is not below the folder, missing, too large or no PNG."""
    path, home = (folder / name).resolve(), folder.resolve()
    if not path.is_relative_to(home) or not path.is_file() or path.stat().st_size > MAX_PICTURE:
        return ""
    content = path.read_bytes()
    return "data:image/png;base64," + base64.b64encode(content).decode() if content.startswith(PNG) else ""
