"""The command `benfourier`: its verbs, and what becomes of an error."""

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from benfourier import __version__
from benfourier.cli.attack import attack
from benfourier.cli.bench import bench
from benfourier.cli.codes import INTERNAL, code_of
from benfourier.cli.detect import detect
from benfourier.cli.evaluate import evaluate
from benfourier.cli.fit import fit
from benfourier.cli.info import info
from benfourier.cli.layers import layers
from benfourier.cli.quickstart import quickstart
from benfourier.cli.report import report
from benfourier.cli.serve import serve
from benfourier.cli.train import train
from benfourier.errors import BenfourierError

DEBUG = "--debug"

app = typer.Typer(
    name="benfourier",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"benfourier {__version__}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error; works after a verb too.")] = False,
) -> None:
    """Guards image classifiers: tells adversarial images from honest ones by the network's own layers."""


app.command()(attack)
app.command()(bench)
app.command()(detect)
app.command()(evaluate)
app.command()(fit)
app.command()(info)
app.command()(layers)
app.command()(quickstart)
app.command()(report)
app.command()(serve)
app.command()(train)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one verb and leaves with its exit code; errors are one line on standard error."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    try:
        app(args=[word for word in given if word != DEBUG], prog_name="benfourier")
    except BenfourierError as error:
        if debug:
            raise
        _leave(str(error), code_of(error))
    except Exception as error:
        if debug:
            raise
        _leave(f"internal error, {type(error).__name__}: {error}; run it again with {DEBUG}", INTERNAL)
    sys.exit(0)


def _leave(complaint: str, code: int) -> NoReturn:
    typer.echo(f"error: {complaint}", err=True)
    sys.exit(code)
