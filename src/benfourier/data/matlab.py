"""Arrays of numbers in a MATLAB 5 file, as SVHN is published.

SciPy's reader ends the whole process on some damaged files, so the little that is needed of the format is read here:
a header of 128 bytes, then elements of type, length and body, each matrix an element or a packed one.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benfourier.errors import InputError

HEADER = 128
MATRIX, PACKED = 14, 15
LARGEST = 2**32  # bytes of an element
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}


def read_matlab(path: str | PathLike[str]) -> dict[str, NDArray[Any]]:
    """Returns the real numeric arrays of a MATLAB 5 file by name; other variables are passed over."""
    try:
        content = memoryview(Path(path).read_bytes())
        _check_header(content)
        found = (_matrix(body) for kind, body in _elements(content[HEADER:]) if kind == MATRIX)
        return {name: array for name, array in found if array is not None}
    except OSError as error:
        raise InputError(
            f"{path}: it cannot be opened ({error.strerror}); check the name and the permissions"
        ) from error
    except (ValueError, struct.error, zlib.error) as error:
        raise InputError(f"{path}: it cannot be read as a MATLAB 5 file ({error}); download it again") from error


def _check_header(content: memoryview) -> None:
    if len(content) < HEADER or bytes(content[126:128]) != b"IM":  # the order of these two tells that of all bytes
        raise ValueError("its header is not one of MATLAB 5 with the low byte first")
    (version,) = struct.unpack_from("<H", content, 124)
    if version != 0x0100:
        raise ValueError(f"its version is {version:#06x}, not 0x0100")


def _elements(content: memoryview, *, packed: bool = False) -> Iterator[tuple[int, memoryview]]:
    """Type and body of every element; packed ones are unpacked."""
    start = 0
    while start < len(content):
        (word,) = struct.unpack_from("<I", content, start)
        if word >> 16:  # up to four bytes stand in the tag itself
            kind, length, begin, following = word & 0xFFFF, word >> 16, start + 4, start + 8
        else:
            (length,) = struct.unpack_from("<I", content, start + 4)
            kind, begin = word, start + 8
            following = begin + length + (-length % 8 if kind != PACKED else 0)
        body = content[begin : begin + length]
        if len(body) < length:
            raise ValueError(f"{length} bytes are stated, {len(body)} follow")
        if kind == PACKED and packed:
            raise ValueError("a packed element holds another packed one")
        if kind == PACKED:
            yield from _elements(memoryview(_unpacked(body)), packed=True)
        else:
            yield kind, body
        start = following


def _unpacked(body: memoryview) -> bytes:
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(body, LARGEST)
    if not unpacking.eof:
        raise ValueError(f"a packed element is cut short, or holds more than {LARGEST:,} bytes")
    return found


def _matrix(body: memoryview) -> tuple[str, NDArray[Any] | None]:
    """Name and values of a matrix; no values if it is complex or not of numbers."""
    parts = list(_elements(body))
    if len(parts) < 4:
        raise ValueError("a matrix lacks its flags, sides, name or values")
    (_, flags), (_, sides), (_, name), (kind, values) = parts[:4]
    (word,) = struct.unpack_from("<I", flags)
    wanted, is_complex = CLASSES.get(word & 0xFF), word & 0x0800
    if wanted is None or is_complex or kind not in STORED:
        return bytes(name).decode("ascii"), None
    shape = np.frombuffer(sides, "<i4").tolist()
    found = np.frombuffer(values, "<" + STORED[kind])
    if min(shape, default=-1) < 0 or math.prod(shape) != found.size:
        raise ValueError(f"a matrix of {'×'.join(map(str, shape))} has {found.size} values")
    return bytes(name).decode("ascii"), found.astype(wanted, copy=False).reshape(shape, order="F")
