import gzip
import hashlib
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import savemat

from benfourier.data import cifar10, formats, mnist, open_source, svhn
from benfourier.errors import InputError, OptionError

RNG = np.random.default_rng(3)
GREY = RNG.integers(0, 256, (7, 28, 28), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 1, 1, 0, 7], np.uint8)


def idx(values: NDArray[np.uint8], kind: int = 8) -> bytes:
    """The content of an idx file."""
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, kind, values.ndim, *values.shape) + values.tobytes()


def write_mnist(folder: Path, *, prefix: str = "t10k", zipped: bool = False) -> Path:
    """Two idx files under their official names; the path of the images."""
    ending, pack = (".gz", gzip.compress) if zipped else ("", bytes)
    (folder / f"{prefix}-labels-idx1-ubyte{ending}").write_bytes(pack(idx(LABELS)))
    images = folder / f"{prefix}-images-idx3-ubyte{ending}"
    images.write_bytes(pack(idx(GREY)))
    return images


def write_cifar10(path: Path, labels: NDArray[np.uint8] = LABELS) -> Path:
    """One batch of CIFAR-10's binary version."""
    planes = COLOUR.transpose(0, 3, 1, 2).reshape(len(COLOUR), -1)
    path.write_bytes(np.concatenate([labels[:, None], planes], axis=1).tobytes())
    return path


def write_svhn(path: Path, *, packed: bool = False) -> Path:
    """One of SVHN's files; the digit 0 is stored as 10."""
    arrays = {"X": COLOUR.transpose(1, 2, 3, 0), "y": np.where(LABELS == 0, 10, LABELS)[:, None].astype(np.uint8)}
    savemat(path, arrays, do_compression=packed)
    return path


def make_official(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Lets small files pass for SVHN's own."""
    for path in paths:
        content = path.read_bytes()
        monkeypatch.setitem(formats.SVHN_FILES, path.name, (len(content), hashlib.sha256(content).hexdigest()))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("open_it", [mnist, open_source])
def test_mnist_files_give_their_images(tmp_path: Path, zipped: bool, open_it: Callable[[Any], Any]) -> None:
    source = open_it(str(write_mnist(tmp_path, zipped=zipped)))
    assert np.array_equal(source.pixels(range(7)), GREY[..., None])
    assert source.labels.tolist() == LABELS.tolist()
    assert source.ids[6] == "t10k-images/00006"
    assert source.classes == tuple("0123456789")


def test_images_and_labels_need_not_both_be_gzipped(tmp_path: Path) -> None:
    path = write_mnist(tmp_path, zipped=True)
    packed = tmp_path / "t10k-labels-idx1-ubyte.gz"
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    assert len(mnist(path)) == 7


def test_the_spelling_with_a_dot_is_known_too(tmp_path: Path) -> None:
    (tmp_path / "train-images.idx3-ubyte").write_bytes(idx(GREY))
    (tmp_path / "train-labels.idx1-ubyte").write_bytes(idx(LABELS))
    assert mnist(tmp_path).ids[0] == "train-images/00000"


def test_a_folder_of_mnist_files_needs_a_part_if_it_holds_two(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    assert len(open_source(str(tmp_path))) == 7
    write_mnist(tmp_path, prefix="train", zipped=True)
    train, test = open_source(f"{tmp_path}:train"), open_source(f"{tmp_path}:test")
    assert set(train.ids).isdisjoint(test.ids)
    with pytest.raises(OptionError, match="no part is named; its parts are train, test; add one to the path"):
        open_source(str(tmp_path))
    with pytest.raises(OptionError, match="part is 'val'; its parts are train, test"):
        open_source(f"{tmp_path}:val")
    with pytest.raises(OptionError, match="one file is one part"):
        open_source(f"{tmp_path}/t10k-images-idx3-ubyte:test")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "it begins with nothing; an idx file begins with 00 00"),
        (b"\x89PNG\r\n\x1a\n" + bytes(20), "it begins with 89 50 4e 47"),
        (b"\0\0\x08", "it begins with 00 00 08"),
        (idx(GREY)[:9], "it begins with 00 00 08 03; an idx file"),
        (idx(GREY, kind=13), "its magic number is 00 00 0d 03; images are 00 00 08 03"),
        (idx(LABELS) + bytes(8), "its magic number is 00 00 08 01; images are 00 00 08 03"),
        (idx(GREY)[:-1], "its header states 7×28×28 bytes, 5487 follow; it is cut short"),
        (idx(GREY) + b"\0", "its header states 7×28×28 bytes, 5489 follow"),
        (struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31, 2**31, 2**31), "bytes, 0 follow"),
        (gzip.compress(idx(GREY), mtime=0)[:-900], "it cannot be unpacked"),
        (b"\x1f\x8b" + bytes(30), "it cannot be unpacked"),
        (gzip.compress(b"something else", mtime=0), "it begins with 73 6f 6d 65"),
    ],
)
def test_broken_idx_files_are_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = write_mnist(tmp_path)
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(complaint)) as caught:
        mnist(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        (idx(LABELS[:6]), "there are 7 images and 6 labels"),
        (idx(LABELS)[:-1], "its header states 7 bytes, 6 follow"),
        (idx(GREY), "labels are 00 00 08 01"),
        (idx(LABELS + np.uint8(1)), "label 10 is unknown; there are 10 classes"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path: Path, labels: bytes, complaint: str) -> None:
    path = write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(labels)
    with pytest.raises(InputError, match=re.escape(complaint)):
        mnist(path)


def test_images_without_their_labels_are_refused(tmp_path: Path) -> None:
    path = write_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError, match="its labels are missing; put t10k-labels-idx1-ubyte or "):
        mnist(path)
    with pytest.raises(InputError, match="No such file"):
        mnist(tmp_path / "none")


def test_cifar10_batches_give_their_images(tmp_path: Path) -> None:
    source = open_source(str(write_cifar10(tmp_path / "test_batch.bin")))
    assert np.array_equal(source.pixels(range(7)), COLOUR)
    assert source.labels.tolist() == LABELS.tolist()
    assert source.classes[3] == "cat"
    assert source.ids[6] == "test_batch/00006"


def test_cifar10_training_batches_follow_each_other(tmp_path: Path) -> None:
    for number in (2, 1):
        write_cifar10(tmp_path / f"data_batch_{number}.bin", np.full(7, number, np.uint8))
    write_cifar10(tmp_path / "test_batch.bin")
    (tmp_path / "readme.html").write_text("about", encoding="utf-8")
    train = open_source(f"{tmp_path}:train")
    assert train.labels.tolist() == [1] * 7 + [2] * 7
    assert train.ids[7] == "data_batch_2/00000"
    assert set(train.ids).isdisjoint(open_source(f"{tmp_path}:test").ids)
    with pytest.raises(OptionError, match="its parts are train, test"):
        cifar10(tmp_path)


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c + b"\0", lambda c: b""])
def test_cifar10_files_of_another_length_are_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = write_cifar10(tmp_path / "test_batch.bin")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(InputError, match="a batch of CIFAR-10 has 3073 per image"):
        open_source(str(path))


def test_an_unknown_cifar10_label_is_refused(tmp_path: Path) -> None:
    path = write_cifar10(tmp_path / "test_batch.bin", LABELS + np.uint8(1))
    with pytest.raises(InputError, match="label 10 is unknown; CIFAR-10's labels are 0 to 9"):
        cifar10(path)


@pytest.mark.parametrize("packed", [False, True])
def test_svhn_files_give_their_images_and_ten_becomes_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    path = write_svhn(tmp_path / "test_32x32.mat", packed=packed)
    make_official(monkeypatch, path)
    source = open_source(str(path))
    assert np.array_equal(source.pixels(range(7)), COLOUR)
    assert source.labels.tolist() == LABELS.tolist()
    assert source.ids[6] == "test_32x32/00006"


def test_svhn_folders_have_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test, extra = tmp_path / "test_32x32.mat", tmp_path / "extra_32x32.mat"
    make_official(monkeypatch, write_svhn(test))
    assert len(open_source(str(tmp_path))) == 7
    make_official(monkeypatch, write_svhn(extra))
    assert open_source(f"{tmp_path}:extra").ids[0] == "extra_32x32/00000"
    with pytest.raises(OptionError, match="its parts are test, extra"):
        svhn(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("packed", [False, True])
def test_truncated_mat_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, packed: bool
) -> None:
    path = write_svhn(tmp_path / "test_32x32.mat", packed=packed)
    make_official(monkeypatch, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=re.escape(str(path))):
        svhn(path)


def test_mat_files_that_are_not_svhns_own_are_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scipy.io.loadmat", lambda *_: pytest.fail("it was read"))
    with pytest.raises(InputError, match="and should have 64,275,384 with SHA-256 cdce80dfb2a2"):
        svhn(write_svhn(tmp_path / "test_32x32.mat"))
    with pytest.raises(InputError, match=r"it is not one of SVHN's files, .*; save other images as \.npz"):
        open_source(str(write_svhn(tmp_path / "a.mat")))
    with pytest.raises(InputError, match="it cannot be opened"):
        svhn(tmp_path / "extra_32x32.mat")


def test_files_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    path = write_cifar10(tmp_path / "test_batch.bin")
    for reader in (mnist, svhn):
        with pytest.raises(InputError, match=re.escape(str(path))):
            reader(path)
    with pytest.raises(InputError, match="it holds no files under their official names"):
        mnist(tmp_path)
