"""Arrays and a manifest in one safetensors file: written whole or not at all, read only if nothing is amiss."""

import json
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from benfourier.errors import StoreError
from benfourier.store.digest import digest_of

Arrays = dict[str, NDArray[Any]]
AGAIN = "get or make it again"
STRANGE = (AttributeError, RecursionError, TypeError, ValueError)  # raised by what we never write
HEADER = 100_000_000  # bytes, the longest header that safetensors allows


@dataclass(frozen=True)
class Glance:
    """What a safetensors file says of itself, before any digest is looked at.

    Args:
        manifest: the manifest of a file of ours; empty for one of another program.
        arrays: dtype and shape by name.
    """

    manifest: dict[str, Any]
    arrays: dict[str, tuple[str, tuple[int, ...]]]


def write(
    path: str | PathLike[str],
    kind: str,
    schema: int,
    manifest: Mapping[str, object],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Writes a file that nobody ever sees half of."""
    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    try:
        told = json.loads(json.dumps({"kind": kind, "schema": schema, **manifest}, allow_nan=False))
        told["digests"] = {"arrays": _of_arrays(held), "manifest": _of_manifest(told)}
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"{path}: its manifest cannot be written as JSON ({error}); use texts, finite numbers, lists and mappings"
        ) from error
    metadata = {"manifest": json.dumps(told, ensure_ascii=False, allow_nan=False)}
    put(path, lambda beside: save_file(held, beside, metadata=metadata))


def put(path: str | PathLike[str], save: Callable[[Path], object]) -> None:
    """Lets save write a file beside the wanted one and puts it in its place, so that nobody ever sees half of it."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        save(beside)
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"{path}: it cannot be written ({error}); check the folder, its permissions and space"
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def read(path: str | PathLike[str], kind: str, schema: int) -> tuple[dict[str, Any], Arrays]:
    """Returns the manifest and the arrays of a file, or raises StoreError unless it is whole and of that kind."""
    try:
        with safe_open(path, framework="numpy") as file:
            manifest = _manifest(file.metadata())
            _check_kind(manifest, kind, schema)
            arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        _check_digests(manifest, arrays)
    except (StoreError, SafetensorError, OSError, *STRANGE) as error:
        raise _refusal(path, error) from error
    return manifest, arrays


def glance(path: str | PathLike[str]) -> Glance:
    """Returns what any safetensors file says of itself; its arrays are not read."""
    try:
        with safe_open(path, framework="numpy") as file:
            manifest = _manifest(file.metadata())
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: (str(part.get_dtype()), tuple(part.get_shape())) for name, part in slices.items()}
    except (StoreError, SafetensorError, OSError, *STRANGE) as error:
        raise _refusal(path, error) from error
    return Glance(manifest, found)


def _manifest(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """The manifest in a file's metadata; empty if there is none."""
    try:
        manifest = json.loads((metadata or {}).get("manifest", "{}"))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"its manifest is no JSON ({error}); {AGAIN}") from error
    return manifest if isinstance(manifest, dict) else {}


def _check_kind(manifest: Mapping[str, Any], kind: str, schema: int) -> None:
    """Raises StoreError unless a manifest is of that kind and schema."""
    found, written = manifest.get("kind"), manifest.get("schema")
    if found != kind:
        raise StoreError(f"it holds {found or 'something else'}, not {kind}; give the file that was saved as such")
    if written == schema:
        return
    told = f"its schema is {written}; this version reads {schema}"
    if isinstance(written, int) and written > schema:
        raise StoreError(f"{told}; it was written by a newer version; upgrade benfourier")
    raise StoreError(f"{told}; it was written by a version that is too old; make it again")


def _check_digests(manifest: dict[str, Any], arrays: Arrays) -> None:
    """Takes the digests out of a manifest, or raises StoreError unless all is as it was written."""
    digests = manifest.pop("digests", None)
    wanted = digests if isinstance(digests, dict) else {}
    if wanted.get("manifest") != _of_manifest(manifest):
        raise StoreError(f"its manifest is not what was written; it was edited or is damaged; {AGAIN}")
    if wanted.get("arrays") != _of_arrays(arrays):
        raise StoreError(f"its content is not what was written; its arrays are damaged; {AGAIN}")


def _refusal(path: str | PathLike[str], error: Exception) -> StoreError:
    """The complaint about a file that could not be read."""
    if isinstance(error, StoreError):
        return StoreError(f"{path}: {error}")
    if isinstance(error, OSError):
        return StoreError(f"{path}: it cannot be opened ({error}); check the name and the permissions")
    return StoreError(f"{path}: it is cut short, damaged or no safetensors file ({_lack(path) or error}); {AGAIN}")


def _lack(path: str | PathLike[str]) -> str | None:
    """How many bytes of a file are missing, as far as its beginning tells."""
    with suppress(OSError, ValueError, TypeError, AttributeError, LookupError):
        content = Path(path).stat().st_size
        if not content:
            return "it is empty"
        with Path(path).open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, HEADER)))
        wanted = 8 + length + max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
        if content != wanted:
            return f"it has {content:,} bytes, and should have {wanted:,}"
    return None


def _of_manifest(manifest: Mapping[str, Any]) -> str:
    return digest_of([json.dumps(manifest, sort_keys=True, allow_nan=False)])


def _of_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    return digest_of(part for name in sorted(arrays) for part in (name, arrays[name]))
