"""What verbs print and write: tables, JSON, files, and the exit codes that verbs share."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

import benfourier as bf
from benfourier.errors import OptionError, StoreError

# Exit codes, the same for every verb; 0 is success.
ADVERSARIAL = 1  # detect only: images were rejected
USAGE = 2  # usage or bad input
MISSING_EXTRA = 3
BAD_FILE = 4  # a stored file is missing, damaged, or not what it should be
INTERNAL = 5
INCOMPLETE = 6  # finished, but some inputs or trials failed
INTERRUPTED = 130


def print_json(value: object) -> None:
    """Prints a value as JSON on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table; columns of numbers are aligned to the right."""
    from rich.console import Console  # `benfourier --help` starts faster without rich's tables
    from rich.table import Table

    cells = [tuple(row) for row in rows]
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        numeric = all(row[place][:1].isdigit() or row[place][:1] in "+-" for row in cells)
        table.add_column(column, justify="right" if cells and numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    Console(highlight=False).print(table)


def check_output_path(out: Path, **inputs: Path | str | None) -> None:
    """Raises an error unless a file can be written there that is none of the inputs, by option, of the verb.

    Verbs call it before their work begins. Inputs that are no files do not matter.
    """
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            (out.parent / f".{out.name}.12345678").lstat()  # the name under which it is written first
    except OSError as error:
        raise OptionError(f"out is {str(out)!r}, which cannot be a name ({error}); give a shorter one") from error
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise StoreError(f"{out}: it is a folder, or its folder does not exist; name a file in a folder that does")
    for option, source in inputs.items():
        # a source may name a part of a file: data.npz:test
        files = [Path(word) for word in (str(source), str(source).rpartition(":")[0]) if source is not None and word]
        if any(out.exists() and file.exists() and out.samefile(file) for file in files):
            name = option.replace("_", "-")
            raise StoreError(f"{out}: this is what --{name} names, and it would be overwritten; write to another file")


def print_unreadable(images: "Iterable[bf.UnreadableImage]") -> None:
    """Prints one line on standard error for each image that could not be read."""
    for image in images:
        typer.echo(f"not readable: {image}", err=True)


@contextmanager
def resumable(hint: Callable[[], str]) -> Iterator[None]:
    """Ends the verb at Ctrl-C with a hint at what is done, which may depend on the moment, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {hint()}", err=True)
        raise typer.Exit(INTERRUPTED) from None
