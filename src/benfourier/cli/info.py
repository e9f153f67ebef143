"""`benfourier info`: what a stored file says of itself; no network is needed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import benfourier as bf
from benfourier.cli import options, output

CARD = "card."  # entries that the card's text shows
MAX_ENTRIES = 6  # of a list that are shown


def info(
    file: Annotated[Path, typer.Argument(help="A guard, a detector, examples, or weights.")],
    json: options.Json = False,
) -> None:
    """Print what is in a stored file, after its digests are checked.

    Example: `benfourier info guard.bf`
    """
    header = bf.inspect(file)
    if json:
        arrays = {name: {"dtype": kind, "shape": shape} for name, (kind, shape) in header.arrays.items()}
        output.print_json({"file": str(file), "manifest": header.manifest, "arrays": arrays})
        return
    if header.manifest.get("card") is not None:
        typer.echo(f"{bf.GuardCard.from_json(header.manifest['card'])}\n")
    title = f"{file}: {header.manifest.get('kind', 'weights of another program')}"
    output.print_table(
        title,
        ("entry", "value"),
        [(name, _short(value)) for name, value in _flat(header.manifest) if not name.startswith(CARD)],
    )
    rows = [(name, kind, "×".join(map(str, shape)) or "one number") for name, (kind, shape) in header.arrays.items()]
    output.print_table(f"{len(rows)} arrays", ("array", "type", "shape"), rows)


def _flat(entries: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the entries of nested mappings under names such as "threshold.value"."""
    for name, value in entries.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value: object) -> str:
    """A value on one line; of long lists the first entries and their number."""
    if not isinstance(value, list):
        return "-" if value is None else str(value)
    text = ", ".join(_short(part) for part in value[:MAX_ENTRIES])
    return text if len(value) <= MAX_ENTRIES else f"{text}, … ({len(value)} in all)"
