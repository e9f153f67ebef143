"""Arrays and a manifest in one safetensors file, written as a whole and checked by digests when it is read."""

import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from benfourier.errors import StoreError

FilePath = str | PathLike[str]
Arrays = dict[str, NDArray[Any]]
Part = str | bytes | NDArray[np.generic]
ADVICE = "get or make it again"
# Versions of the formats that `inspect` checks. Whoever changes a format raises its number.
SCHEMAS = {"benfourier-examples": 2, "benfourier-detector": 2, "benfourier-guard": 2}
MAX_HEADER = 100_000_000  # bytes; safetensors refuses to write more
DTYPES = {
    **{"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4"},
    **{"U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8"},
}


@dataclass(frozen=True)
class ArrayEntry:
    """One array of a safetensors file."""

    dtype: str  # as safetensors calls it, such as "F32" or "BF16"
    shape: tuple[int, ...]
    begin: int  # first byte, counted from the end of the header
    end: int  # byte after the last


@dataclass(frozen=True)
class ArtifactHeader:
    """What a safetensors file says of itself."""

    manifest: dict[str, Any]  # empty for a file of another program
    entries: dict[str, ArrayEntry]  # by name; their sizes add up to that of the file
    start: int  # byte where the arrays begin

    @property
    def arrays(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Dtype and shape by name."""
        return {name: (entry.dtype, entry.shape) for name, entry in self.entries.items()}


def digest_of(parts: Iterable[Part]) -> str:
    """Returns the SHA-256 of the parts in hexadecimal; where one part ends and the next begins counts too."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            total.update(f"{part.dtype.str}{part.shape}".encode())
            total.update(np.ascontiguousarray(part).data)
        else:
            content = part.encode() if isinstance(part, str) else part
            total.update(f"{len(content)}:".encode())
            total.update(content)
    return total.hexdigest()


def write(
    path: FilePath, kind: str, schema: int, manifest: Mapping[str, object], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Writes a file with digests of its manifest and its arrays; it appears as a whole or not at all."""
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    try:
        content = json.loads(json.dumps({"kind": kind, "schema": schema, **manifest}, allow_nan=False))
        content["digests"] = {"arrays": _arrays_digest(contiguous), "manifest": _manifest_digest(content)}
    except (TypeError, ValueError) as error:
        problem = f"{path}: its manifest cannot be written as JSON ({error})"
        raise StoreError(f"{problem}; use texts, finite numbers, lists and mappings") from error
    metadata = {"manifest": json.dumps(content, ensure_ascii=False, allow_nan=False)}
    replace_file(path, lambda temporary: save_file(contiguous, temporary, metadata=metadata))


def replace_file(path: FilePath, save: Callable[[Path], object]) -> None:
    """Lets save write a temporary file in the same folder, then renames it: readers never see half a file."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        save(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        problem = f"{path}: it cannot be written ({error})"
        raise StoreError(f"{problem}; check the folder, its permissions and space") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on disk; without it a power cut can undo a rename."""
    with suppress(OSError):  # Windows opens no folders, and some file systems sync none
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(path: FilePath, kind: str, schema: int) -> tuple[dict[str, Any], Arrays]:
    """Returns the manifest and the arrays of a file, or raises StoreError unless it is whole and of that kind."""
    with _open(path) as (file, header):
        manifest = header.manifest
        _check_kind(manifest, kind, schema)
        arrays = {name: _array(file, header, name) for name in sorted(header.entries)}
    digests = manifest.pop("digests", None)
    expected = digests if isinstance(digests, dict) else {}
    if expected.get("manifest") != _manifest_digest(manifest):
        raise StoreError(f"{path}: its manifest is not what was written; it was edited or is damaged; {ADVICE}")
    if expected.get("arrays") != _arrays_digest(arrays):
        raise StoreError(f"{path}: its content is not what was written; its arrays are damaged; {ADVICE}")
    return manifest, arrays


def inspect(path: FilePath) -> ArtifactHeader:
    """Returns what a stored file says of itself, or raises StoreError if it is damaged or too new.

    Digests are checked wherever a file has some. Weights of other programs have none.
    """
    with _open(path) as (_, header):
        kind = header.manifest.get("kind")
    if "digests" in header.manifest or kind in SCHEMAS:
        read(path, str(kind), SCHEMAS.get(str(kind), header.manifest.get("schema", 0)))
    return header


def read_bytes(path: FilePath) -> tuple[ArtifactHeader, dict[str, NDArray[np.uint8]]]:
    """Returns the header of any safetensors file and the bytes of its arrays, for dtypes that NumPy does not have.

    The file is read into memory, never mapped: a mapped file that another process shortens ends this one.
    """
    with _open(path) as (file, header):
        return header, {name: _content(file, header.start, entry) for name, entry in header.entries.items()}


@contextmanager
def _open(path: FilePath) -> Iterator[tuple[BinaryIO, ArtifactHeader]]:
    """Yields an open file with its header; errors name the file, and a change of the file meanwhile is one."""
    try:
        with Path(path).open("rb") as file:
            before = os.fstat(file.fileno())
            yield file, _header(file, before.st_size)
            after = os.fstat(file.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise StoreError("it changed while it was read; wait until its writer is done, and read it again")
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from error
    except OSError as error:
        raise StoreError(f"{path}: it cannot be opened ({error}); check the name and the permissions") from error


def _header(file: BinaryIO, size: int) -> ArtifactHeader:
    """The header of a safetensors file, whose sizes are checked before anything is allocated for the arrays."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(MAX_HEADER, size - 8):
        raise _damage(f"it has {size:,} bytes, and a header of {length:,}" if size else "it is empty")
    try:
        content = json.loads(file.read(length))
        metadata = content.pop("__metadata__", None) or {}
        entries = {name: _entry(name, fields) for name, fields in content.items()}
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _damage(f"its header is damaged: {error}") from error
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise _damage(f"{name} begins at byte {entry.begin:,}, not at {end:,}")
        end = entry.end
    if size != 8 + length + end:
        raise _damage(f"it has {size:,} bytes, and should have {8 + length + end:,}")
    try:
        manifest = json.loads(metadata.get("manifest", "{}"))
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"its manifest is no JSON ({error}); {ADVICE}") from error
    return ArtifactHeader(manifest if isinstance(manifest, dict) else {}, entries, 8 + length)


def _entry(name: str, fields: Mapping[str, Any]) -> ArrayEntry:
    """One entry of a header, or ValueError unless its shape takes as many bytes as it has."""
    begin, end = fields["data_offsets"]
    dtype, shape = fields["dtype"], tuple(fields["shape"])
    if not all(type(count) is int and count >= 0 for count in (*shape, begin, end)):
        raise ValueError(f"{name} has the shape {shape} and the bytes {begin} to {end}")
    bits = 8 if dtype == "BOOL" else int(dtype.partition("_")[0].lstrip("BFCIU"))  # such as F32, BF16 or F8_E4M3
    if math.prod(shape) * bits != 8 * (end - begin):
        raise ValueError(f"{name} is {dtype} {shape}, and has {end - begin} bytes")
    return ArrayEntry(dtype, shape, begin, end)


def _content(file: BinaryIO, start: int, entry: ArrayEntry) -> NDArray[np.uint8]:
    """The bytes of one array, (end - begin,)."""
    content = np.empty(entry.end - entry.begin, np.uint8)
    file.seek(start + entry.begin)
    if content.size and file.readinto(content.data) != content.size:  # type: ignore[attr-defined]
        raise StoreError("it became shorter while it was read; wait until its writer is done, and read it again")
    return content


def _array(file: BinaryIO, header: ArtifactHeader, name: str) -> NDArray[Any]:
    entry = header.entries[name]
    if entry.dtype not in DTYPES:
        raise _damage(f"{name} is {entry.dtype}; files of benfourier hold {', '.join(DTYPES)}")
    array: NDArray[Any] = _content(file, header.start, entry).view(DTYPES[entry.dtype]).reshape(entry.shape)
    return array


def _check_kind(manifest: Mapping[str, Any], kind: str, schema: int) -> None:
    content, version = manifest.get("kind"), manifest.get("schema")
    if content != kind:
        raise StoreError(f"it holds {content or 'something else'}, not {kind}; give the file that was saved as such")
    if version != schema:
        is_newer = isinstance(version, int) and version > schema
        advice = "a newer version; upgrade benfourier" if is_newer else "one that is too old; make or fit it again"
        raise StoreError(f"its schema is {version}; this version reads {schema}; it was written by {advice}")


def _damage(problem: str) -> StoreError:
    return StoreError(f"it is cut short, damaged or no safetensors file ({problem}); {ADVICE}")


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
    return digest_of([json.dumps(manifest, sort_keys=True, allow_nan=False)])


def _arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    return digest_of(part for name in sorted(arrays) for part in (name, arrays[name]))
