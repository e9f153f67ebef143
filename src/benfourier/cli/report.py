"""`benfourier report`: tables, figures and a page from a ledger."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from benfourier.cli import options
from benfourier.cli.printing import print_json
from benfourier.errors import OptionError, StoreError


def report(
    ledger: Annotated[Path, typer.Argument(help="What `benfourier evaluate` wrote.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write a page with all tables and figures: one HTML file.", show_default=False
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Write the tables as Markdown.", show_default=False)
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(
            "--paper",
            help="The paper's numbers to show beside: `cifar10`, `svhn`, `imagenet-alexnet`, `imagenet-vgg16`, "
            "`mnist`, `cifar10-vgg19` or `none`. Guessed from data and network if not given.",
            show_default=False,
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser; needs --out.")] = False,
    json: options.Json = False,
) -> None:
    """Show what an evaluation found, beside the paper's numbers; from the ledger alone.

    Tables are printed; --out also writes a page with figures, which needs `pip install 'benfourier[report]'`.

    Example: `benfourier report mnist.jsonl`

    Example: `benfourier report cifar.jsonl --out report.html --paper cifar10 --open`
    """
    from benfourier.report.gathering import gather
    from benfourier.report.plain import plain
    from benfourier.report.sections import sections, title
    from benfourier.report.terminal import show as print_report
    from benfourier.store.ledger import read

    if show and out is None:
        raise OptionError("--open is given without a page; name its file with --out report.html")
    for file in (out, markdown):
        if file is not None and file.resolve() == ledger.resolve():
            raise OptionError(f"{file}: this is the ledger, which a report must not replace; choose another file")
    results = gather(read(ledger), paper)
    if results.empty:
        raise StoreError(
            f"{ledger}: there are no results in this ledger; `benfourier evaluate` with its plan makes them"
        )
    parts = sections(results)
    if out is not None:
        from benfourier.report.page import page

        _write(out, page(results, ledger))
    if markdown is not None:
        from benfourier.report.markdown import markdown as as_markdown

        _write(markdown, as_markdown(title(results), parts))
    if json:
        print_json(plain(title(results), parts))
    else:
        print_report(title(results), parts)
    if show and out is not None:
        webbrowser.open(out.resolve().as_uri())


def _write(path: Path, text: str) -> None:
    """Writes a file, or says why it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{path}: the report cannot be written ({error}); choose another file") from error
    typer.echo(f"wrote {path}", err=True)
