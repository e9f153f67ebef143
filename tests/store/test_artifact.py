"""Artifacts: sizes are checked before anything is allocated, and files that change are refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from benfourier.errors import StoreError
from benfourier.store import artifact

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False]), "empty": np.zeros((0, 4), np.float32)}

READER = """
import sys
from benfourier.errors import StoreError
from benfourier.store import artifact
reads = refusals = 0
while reads < 100 or refusals < 100:
    try:
        artifact.read(sys.argv[1], "kind", 1)
        reads += 1
    except StoreError:
        refusals += 1
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    artifact.write(tmp_path / "x.bf", "kind", 1, {"note": "é"}, ARRAYS)
    return tmp_path / "x.bf"


def write_raw(path: Path, header: object, data: bytes = b"") -> None:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + data)


def test_arrays_come_back_writable_and_apart_from_the_file(path: Path) -> None:
    manifest, arrays = artifact.read(path, "kind", 1)
    assert manifest == {"kind": "kind", "schema": 1, "note": "é"}
    assert all(
        np.array_equal(arrays[name], array) and arrays[name].dtype == array.dtype for name, array in ARRAYS.items()
    )
    arrays["a"][0, 0] = 7
    os.truncate(path, 0)  # a mapped file would end this process at the next access
    assert arrays["a"].sum() == 22


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}},
            "it has .* bytes, and should have 4,398",
        ),
        (
            {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 8]}},
            "a is F32 .* and has 8 bytes",
        ),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "a has the shape"),
        ({"a": {"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}}, "a has the shape"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}, "a begins at byte 8, not at 0"),
        ({"a": {"dtype": "word", "shape": [2], "data_offsets": [0, 8]}}, "its header is damaged"),
        ({"a": {"shape": [2], "data_offsets": [0, 8]}}, "its header is damaged"),
        ({"a": 3}, "its header is damaged"),
        ([], "its header is damaged"),
        (b"[" * 100_000, "its header is damaged"),
        (b"\xff\xfe", "its header is damaged"),
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused(tmp_path: Path, header: object, message: str) -> None:
    write_raw(tmp_path / "x", header, bytes(8))
    for read in (artifact.inspect, artifact.read_bytes):
        with pytest.raises(StoreError, match=message):
            read(tmp_path / "x")


@pytest.mark.parametrize("content", [b"", b"1234", (2**62).to_bytes(8, "little") + b"{}", bytes(8), b"\x89PNG" * 9])
def test_a_file_that_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(StoreError, match="x: it is cut short, damaged or no safetensors file"):
        artifact.read(tmp_path / "x", "kind", 1)


def test_a_file_that_changes_while_it_is_read_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = artifact._array

    def changing(*arguments: Any) -> Any:
        os.utime(path, (1, 1))
        return array(*arguments)

    monkeypatch.setattr(artifact, "_array", changing)
    with pytest.raises(StoreError, match=r"x\.bf: it changed while it was read"):
        artifact.read(path, "kind", 1)


def test_a_file_that_is_cut_while_it_is_read_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = artifact._header

    def cutting(*arguments: Any) -> Any:
        result = header(*arguments)
        os.truncate(path, 20)
        return result

    monkeypatch.setattr(artifact, "_header", cutting)
    with pytest.raises(StoreError, match="while it was read"):
        artifact.read(path, "kind", 1)


def test_dtypes_that_numpy_does_not_have_come_as_bytes(tmp_path: Path) -> None:
    tensors = {
        "half": torch.arange(3, dtype=torch.bfloat16),
        "tiny": torch.ones(2, 2).to(torch.float8_e4m3fn),
        "whole": torch.arange(4),
    }
    save_file(tensors, tmp_path / "x")
    header, content = artifact.read_bytes(tmp_path / "x")
    assert header.arrays == {"half": ("BF16", (3,)), "tiny": ("F8_E4M3", (2, 2)), "whole": ("I64", (4,))}
    assert header.manifest == {}
    for name, tensor in tensors.items():
        assert torch.equal(torch.from_numpy(content[name]), tensor.reshape(-1).view(torch.uint8))


def test_inspect_returns_the_header_of_a_whole_file_and_refuses_a_damaged_one(path: Path) -> None:
    header = artifact.inspect(path)
    assert (header.manifest["note"], header.arrays["a"]) == ("é", ("F64", (2, 3)))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="its arrays are damaged"):
        artifact.inspect(path)


def test_inspect_refuses_a_newer_schema_of_a_known_kind_and_takes_files_of_other_programs(tmp_path: Path) -> None:
    artifact.write(tmp_path / "new.bf", "benfourier-guard", artifact.SCHEMAS["benfourier-guard"] + 1, {}, ARRAYS)
    with pytest.raises(StoreError, match="upgrade benfourier"):
        artifact.inspect(tmp_path / "new.bf")
    save_file({"weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    assert artifact.inspect(tmp_path / "other.safetensors").arrays == {"weight": ("F32", (3,))}


def test_a_file_rewritten_in_place_during_reads_is_whole_or_refused_and_ends_no_process(tmp_path: Path) -> None:
    path = tmp_path / "x.bf"
    artifact.write(path, "kind", 1, {}, {"a": np.arange(2.0**17)})
    content = path.read_bytes()
    with subprocess.Popen([sys.executable, "-c", READER, str(path)]) as reader:  # noqa: S603
        while reader.poll() is None:  # as `cp` does it: cut to nothing, then written; a mapped file would be a SIGBUS
            for part in (content[: len(content) // 2], content):
                path.write_bytes(part)
    assert reader.returncode == 0


def test_a_folder_is_synced_after_a_file_in_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real = list[tuple[str, bool]](), os.fsync

    def sync(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, (tmp_path / "x.bf").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    artifact.write(tmp_path / "x.bf", "kind", 1, {}, ARRAYS)
    (file, early), folder = synced
    assert (file.startswith(".x.bf."), early) == (True, False)
    assert folder == (tmp_path.name, True)
