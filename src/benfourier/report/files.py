"""From the file of a ledger to a report, and from a report to a file."""

from os import PathLike
from pathlib import Path

from benfourier.errors import OptionError, StoreError, check_choice
from benfourier.report import html, render
from benfourier.report.registry import Audience, Report, build
from benfourier.report.results import Results
from benfourier.store.ledger import read

FORMATS = ("html", "markdown")


def read_report(
    ledger: str | PathLike[str], *, paper: str | None = None, audience: str = Audience.FULL.value
) -> Report:
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
    """Writes a report to a file, whose folder is made if it is not there.

    Args:
        report: to be written.
        path: of the file.
        ledger: that the report is of; its pictures lie beside it.
        format: "html" for one page with figures, which needs `pip install 'benfourier[report]'`, or "markdown".
    """
    check_choice("format", format, FORMATS)
    if Path(path).resolve() == Path(ledger).resolve():
        raise OptionError(f"{path}: this is the ledger, which a report must not replace; choose another file")
    text = html.page(report, Path(ledger)) if format == "html" else render.markdown(report)
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path}: the report cannot be written ({error}); choose another file") from error
