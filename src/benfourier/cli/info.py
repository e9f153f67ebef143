"""`benfourier info`: what a stored file says of itself; no network is needed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benfourier.cli import options
from benfourier.cli.printing import print_json, print_table

if TYPE_CHECKING:
    from benfourier.store.artifact import Glance

SHOWN = 6  # entries of a long list


def info(
    file: Annotated[Path, typer.Argument(help="A guard, a detector, examples, or weights.", show_default=False)],
    json: options.Json = False,
) -> None:
    """Print what is in a stored file, after its digests are checked.

    Example: `benfourier info guard.bf`
    """
    from benfourier.store import artifact

    found = artifact.glance(file)
    _check(file, found)
    if json:
        arrays = {name: {"dtype": kind, "shape": shape} for name, (kind, shape) in found.arrays.items()}
        print_json({"file": str(file), "manifest": found.manifest, "arrays": arrays})
        return
    title = f"{file}: {found.manifest.get('kind', 'weights of another program')}"
    print_table(title, ("entry", "value"), [(name, _short(value)) for name, value in _flat(found.manifest)])
    rows = [(name, kind, "×".join(map(str, shape)) or "one number") for name, (kind, shape) in found.arrays.items()]
    print_table(f"{len(rows)} arrays", ("array", "type", "shape"), rows)


def _check(file: Path, found: "Glance") -> None:
    """Raises StoreError if a file of ours is damaged or too new; weights have their digests checked when loaded."""
    from benfourier.data import examples
    from benfourier.detectors import saving
    from benfourier.guard import saving as guards
    from benfourier.store import artifact

    schemas: dict[object, int] = {room.KIND: room.SCHEMA for room in (examples, saving, guards)}
    kind = found.manifest.get("kind")
    if "digests" in found.manifest or kind in schemas:
        artifact.read(file, str(kind), schemas.get(kind, found.manifest.get("schema", 0)))


def _flat(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the entries of nested mappings under names such as "threshold.value"."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _short(value: object) -> str:
    """A value on one line; of long lists the first entries and their number."""
    if not isinstance(value, list):
        return "-" if value is None else str(value)
    told = ", ".join(_short(part) for part in value[:SHOWN])
    return told if len(value) <= SHOWN else f"{told}, … ({len(value)} in all)"
