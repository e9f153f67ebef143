import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from benfourier.data import matlab
from benfourier.data.matlab import HEADER, PACKED, read_matlab
from benfourier.errors import InputError

DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (2, 1), (2, 3, 4), (0, 3), (3, 2, 3, 5)])
def test_arrays_are_read_as_scipy_reads_them(tmp_path: Path, shape: tuple[int, ...], packed: bool) -> None:
    rng = np.random.default_rng(5)
    held = {f"the_{dtype}": rng.integers(0, 100, shape).astype(dtype) for dtype in DTYPES}
    savemat(tmp_path / "a.mat", held, do_compression=packed)
    wanted, found = loadmat(tmp_path / "a.mat"), read_matlab(tmp_path / "a.mat")
    assert found.keys() == held.keys()
    for name in held:
        assert found[name].dtype == wanted[name].dtype
        assert np.array_equal(found[name], wanted[name])


def test_variables_that_are_no_real_numbers_are_passed_over(tmp_path: Path) -> None:
    cells = np.empty(2, object)
    cells[:] = [np.ones(2), "b"]
    others: dict[str, Any] = {"text": "word", "cells": cells, "record": {"a": 1}, "turned": np.array([1j])}
    savemat(tmp_path / "a.mat", {**others, "kept": np.arange(3)})
    assert list(read_matlab(tmp_path / "a.mat")) == ["kept"]


@pytest.mark.parametrize(
    ("place", "content", "complaint"),
    [
        (126, b"MI", "its header is not one of MATLAB 5 with the low byte first"),
        (124, b"\0\2", "its version is 0x0200, not 0x0100"),
        (132, b"\xff\xff\xff\x7f", "bytes are stated"),
        (132, b"\x10\0\0\0", "a matrix lacks its flags, sides, name or values"),
        (160, b"\x09\0\0\0", "a matrix of 9×2 has 4 values"),
        (160, b"\xff\xff\xff\xff", "a matrix of -1×2 has 4 values"),
    ],
)
def test_damaged_files_are_refused_by_name(tmp_path: Path, place: int, content: bytes, complaint: str) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {"x": np.ones((2, 2), np.uint8)})
    damaged = bytearray(path.read_bytes())
    damaged[place : place + len(content)] = content
    path.write_bytes(damaged)
    with pytest.raises(InputError, match=re.escape(complaint)) as caught:
        read_matlab(path)
    assert str(caught.value).startswith(f"{path}: ")


def packed(*bodies: bytes) -> bytes:
    """A file of packed elements."""
    header = b" " * 124 + b"\0\1IM"
    return header + b"".join(struct.pack("<II", PACKED, len(body)) + body for body in bodies)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (packed(zlib.compress(packed(zlib.compress(b""))[HEADER:])), "a packed element holds another packed one"),
        (packed(zlib.compress(bytes(3000))), "is cut short, or holds more than 2,000 bytes"),
        (packed(zlib.compress(bytes(1000))[:-6]), "is cut short, or holds more than 2,000 bytes"),
    ],
)
def test_packed_elements_are_unpacked_once_and_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, complaint: str
) -> None:
    monkeypatch.setattr(matlab, "LARGEST", 2000)
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        read_matlab(tmp_path / "a.mat")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it cannot be opened"):
        read_matlab(tmp_path / "none.mat")
