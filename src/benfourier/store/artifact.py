"""Arrays and a manifest in one safetensors file: written whole or not at all, read only if nothing is amiss."""

import json
import os
import secrets
from collections.abc import Mapping
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


def write(
    path: str | PathLike[str],
    kind: str,
    schema: int,
    manifest: Mapping[str, object],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Writes a file beside the wanted one and puts it in its place, so that nobody ever sees half of it."""
    path = Path(path)
    held = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    told = {"kind": kind, "schema": schema, **manifest}
    told["digest"] = _digest(told, held)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        save_file(held, beside, metadata={"manifest": json.dumps(told, ensure_ascii=False, allow_nan=False)})
        with beside.open("rb+") as file:
            os.fsync(file.fileno())
        beside.replace(path)
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"{path}: it cannot be written ({error}); check the folder, its permissions and space"
        ) from error
    finally:
        beside.unlink(missing_ok=True)


def read(path: str | PathLike[str], kind: str, schema: int) -> tuple[dict[str, Any], Arrays]:
    """Returns the manifest and the arrays of a file, or raises StoreError unless it is whole and of that kind."""
    try:
        with safe_open(path, framework="numpy") as file:
            manifest = _manifest(file.metadata(), kind, schema)
            arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from error
    except SafetensorError as error:
        raise StoreError(f"{path}: it is cut short, damaged or no safetensors file ({error}); make it again") from error
    except OSError as error:
        raise StoreError(f"{path}: it cannot be opened ({error}); check the name and the permissions") from error
    if manifest.pop("digest", None) != _digest(manifest, arrays):
        raise StoreError(f"{path}: its content is not what was written; it is damaged; make it again")
    return manifest, arrays


def _manifest(metadata: Mapping[str, str] | None, kind: str, schema: int) -> dict[str, Any]:
    """The manifest in a file's metadata, if it is of that kind and schema."""
    try:
        manifest = json.loads((metadata or {}).get("manifest", "null"))
    except json.JSONDecodeError as error:
        raise StoreError(f"its manifest is no JSON ({error}); make it again") from error
    found = manifest.get("kind") if isinstance(manifest, dict) else None
    if found != kind:
        raise StoreError(f"it holds {found or 'something else'}, not {kind}; give the file that was saved as such")
    if manifest.get("schema") != schema:
        raise StoreError(f"its schema is {manifest.get('schema')}; this version reads {schema}; make it again")
    return dict(manifest)


def _digest(manifest: Mapping[str, object], arrays: Mapping[str, NDArray[Any]]) -> str:
    told = json.dumps(manifest, sort_keys=True, allow_nan=False)
    return digest_of((told, *(part for name in sorted(arrays) for part in (name, arrays[name]))))
