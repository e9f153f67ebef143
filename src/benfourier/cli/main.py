"""The command `benfourier`: its verbs, their exit codes, and how an error ends it."""

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

import benfourier as bf
from benfourier.cli.attack import attack
from benfourier.cli.bench import bench
from benfourier.cli.calibrate import calibrate
from benfourier.cli.detect import detect
from benfourier.cli.evaluate import evaluate
from benfourier.cli.fit import fit
from benfourier.cli.info import info
from benfourier.cli.layers import layers
from benfourier.cli.output import BAD_FILE, INTERNAL, MISSING_EXTRA, USAGE
from benfourier.cli.protect import protect
from benfourier.cli.quickstart import quickstart
from benfourier.cli.report import report
from benfourier.cli.serve import serve
from benfourier.cli.train import train
from benfourier.errors import BenfourierError, MissingExtraError, StoreError

DEBUG = "--debug"
# the first that fits
EXIT_CODES = {MissingExtraError: MISSING_EXTRA, StoreError: BAD_FILE, BenfourierError: USAGE, Exception: INTERNAL}
VERBS = (attack, bench, calibrate, detect, evaluate, fit, info, layers, protect, quickstart, report, serve, train)

app = typer.Typer(
    name="benfourier",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"benfourier {bf.__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error; works after a verb too.")] = False,
) -> None:
    """Detect adversarial images: fit a guard to an image classifier, check images, evaluate detectors."""
    if context.invoked_subcommand != serve.__name__:  # it has a log, and no end
        context.with_resource(bf.progress_lines())


for verb in VERBS:
    app.command()(verb)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one verb and leaves with its exit code; errors are one line on standard error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in words
    try:
        app(args=[word for word in words if word != DEBUG], prog_name="benfourier")
    except Exception as error:
        if debug:
            raise
        unforeseen = f"internal error, {type(error).__name__}: {error}; run it again with {DEBUG}"
        typer.echo(f"error: {error if isinstance(error, BenfourierError) else unforeseen}", err=True)
        sys.exit(next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind)))
    sys.exit(0)
