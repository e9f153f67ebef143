"""`benfourier report`: tables, figures and a page from a ledger."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.errors import OptionError


def report(
    ledger: Annotated[Path, typer.Argument(help="What `benfourier evaluate` wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a page with all tables and figures: one HTML file.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write the tables as Markdown.")] = None,
    paper: Annotated[
        str | None,
        typer.Option(
            "--paper",
            help="The paper's numbers to show beside: `cifar10`, `svhn`, `imagenet-alexnet`, `imagenet-vgg16`, "
            "`mnist`, `cifar10-vgg19` or `none`. Guessed from data and network if not given.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--full", help="Print every table, with intervals and notes.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser; needs --out.")] = False,
    json: options.Json = False,
) -> None:
    """Show what an evaluation found, beside the paper's numbers; from the ledger alone.

    One sentence and one table are printed: the best detector, how good each is at its worst, and what it costs. --full
    prints the rest. --out writes a page with figures, which needs `pip install 'benfourier[report]'`.

    Example: `benfourier report mnist.jsonl`

    Example: `benfourier report cifar.jsonl --out report.html --paper cifar10 --open`
    """
    if show and out is None:
        raise OptionError("--open is given without a page; name its file with --out report.html")
    full = bf.read_report(ledger, paper=paper)
    for path, kind in ((out, "html"), (markdown, "markdown")):
        if path is not None:
            bf.write_report(full, path, ledger, format=kind)
            typer.echo(f"wrote {path}", err=True)
    if json:
        output.print_json(bf.report_json(full))
    elif everything:
        bf.print_report(full)
    else:
        bf.print_report(bf.read_report(ledger, paper=paper, audience="terminal"), compact=True)
    if show and out is not None:
        webbrowser.open(out.resolve().as_uri())
