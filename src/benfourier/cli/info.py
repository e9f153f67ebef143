"""`benfourier info`: what a stored file says of itself; no network is needed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import benfourier as bf
from benfourier.cli import options, output
from benfourier.errors import OptionError

CARD = "card."  # entries that the card's text shows
MAX_ENTRIES = 6  # of a list that are shown


def info(
    file: Annotated[Path, typer.Argument(help="A guard, a detector, examples, or weights.")],
    card: Annotated[
        Path | None, typer.Option("--card", help="Write the guard's card: `card.html`, `card.md` or `card.json`.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print all entries and arrays, not only the card.")] = False,
    json: options.Json = False,
) -> None:
    """Print what is in a stored file, after its digests are checked; of a guard the card.

    --card writes the card of a guard instead: a page, a model card as Hugging Face shows them, or JSON.

    Example: `benfourier info guard.bf`

    Example: `benfourier info guard.bf --card card.html`
    """
    header = bf.inspect(file)
    if card is not None:
        output.check_output_path(card, file=file)
        if header.manifest.get("card") is None:
            raise OptionError(f"{file}: it has no card; `protect`, `fit` and `calibrate` make guards with cards")
        bf.write_card(bf.GuardCard.from_json(header.manifest["card"]), card)
        typer.echo(f"wrote {card}", err=True)
        return
    if json:
        arrays = {name: {"dtype": kind, "shape": shape} for name, (kind, shape) in header.arrays.items()}
        output.print_json({"file": str(file), "manifest": header.manifest, "arrays": arrays})
        return
    if header.manifest.get("card") is not None:
        typer.echo(str(bf.GuardCard.from_json(header.manifest["card"])))
        if not full:
            typer.echo(f"--full prints all entries and {len(header.arrays)} arrays of {file}", err=True)
            return
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
