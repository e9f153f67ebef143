import contextlib
import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benfourier.data import Examples, mnist, npz
from benfourier.errors import InputError, StoreError

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
LABELS = np.array([1, 2, 3], np.uint8)


def write_idx(path: Path, zipped: bool) -> None:
    for name, values in ((path.name, IMAGES[..., 0]), (path.name.replace("images", "labels"), LABELS)):
        content = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()
        path.with_name(name).write_bytes(gzip.compress(content, mtime=0) if zipped else content)


def write_examples(path: Path) -> None:
    images, yes = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.ones(3, dtype=torch.bool)
    Examples(
        clean=images,
        noisy={"noisy": images},
        adversarial={"bim": images},
        success={"bim": yes},
        labels=torch.arange(3),
        ids=("a", "b", "c"),
        noise_levels={"noisy": 0.1},
        counts=(("opened", 3),),
        seed=0,
    ).save(path)


FORMATS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "plain.npz": (lambda path: np.savez(path, x=IMAGES, y=LABELS), npz),
    "packed.npz": (lambda path: np.savez_compressed(path, x=IMAGES, y=LABELS), npz),
    "images": (lambda path: write_idx(path, zipped=False), mnist),
    "images.gz": (lambda path: write_idx(path, zipped=True), mnist),
    "examples.bf": (write_examples, Examples.load),
}


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_read_or_refused_and_nothing_else_happens(tmp_path: Path, name: str) -> None:
    write, read = FORMATS[name]
    path = tmp_path / name
    write(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for place in [*range(min(len(whole), 200)), *rng.integers(0, len(whole), 200).tolist()]:
        for content in (whole[:place], whole[:place] + rng.bytes(1) + whole[place + 1 :]):
            path.write_bytes(content)
            with contextlib.suppress(InputError, StoreError):
                read(path)


def test_every_change_of_saved_examples_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.bf"
    write_examples(path)
    whole = path.read_bytes()
    start = whole.index(b"noise_levels")
    for place in (start + 28, whole.index(b'"seed') + 7, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StoreError):
            Examples.load(path)
