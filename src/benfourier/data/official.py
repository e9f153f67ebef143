"""The databases of the paper in their official file formats: MNIST (idx), CIFAR-10 (binary), SVHN (cropped digits)."""

import gzip
import math
import struct
import zlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benfourier.data.arrays import ArraySource, numbered
from benfourier.data.matlab import read_matlab
from benfourier.data.source import checked_labels
from benfourier.errors import InputError, OptionError

Held = TypeVar("Held")
DIGITS = tuple("0123456789")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_RECORD = 1 + 3 * 32 * 32  # a label, then the red, green and blue planes
IDX_BYTES = 0x08  # the type of unsigned bytes in an idx header


def mnist(path: str | PathLike[str], part: str | None = None) -> ArraySource:
    """Returns the images of an idx file and the labels of the idx file beside it; either may be gzipped.

    Args:
        path: a file such as t10k-images-idx3-ubyte.gz, or the folder in which it lies.
        part: "train" or "test", for a folder that holds both.
    """
    path = Path(path)
    file = _chosen(path, part, _mnist_files(path)) if path.is_dir() else _alone(path, part)
    images = _idx(file, rank=3, what="images")
    labels = _idx(_labels_beside(file), rank=1, what="labels")
    stem = file.name.removesuffix(".gz").partition("idx3")[0].rstrip("-.") or file.name
    return ArraySource(_name(path, part), images, labels.astype(np.int64), DIGITS, numbered(stem, len(images)))


def cifar10(path: str | PathLike[str], part: str | None = None) -> ArraySource:
    """Returns the images of CIFAR-10's binary version.

    Args:
        path: a file such as test_batch.bin, or the folder in which data_batch_1.bin to test_batch.bin lie.
        part: "train" or "test", for a folder that holds both.
    """
    path = Path(path)
    files = _chosen(path, part, _cifar10_files(path)) if path.is_dir() else [_alone(path, part)]
    records = [_cifar10_records(file) for file in files]
    ids = [i for file, rows in zip(files, records, strict=True) for i in numbered(file.stem, len(rows))]
    rows = np.concatenate(records)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return ArraySource(_name(path, part), images, rows[:, 0].astype(np.int64), CIFAR10_CLASSES, tuple(ids))


def svhn(path: str | PathLike[str], part: str | None = None) -> ArraySource:
    """Returns SVHN's cropped digits; label 10 becomes 0.

    Args:
        path: a file such as test_32x32.mat, or the folder in which it lies.
        part: "train", "test" or "extra", for a folder that holds several.
    """
    path = Path(path)
    file = _chosen(path, part, _svhn_files(path)) if path.is_dir() else _alone(path, part)
    held = read_matlab(file)
    if "X" not in held or "y" not in held:
        raise InputError(f"{file}: it lacks the variables X and y; give one of SVHN's files, such as test_32x32.mat")
    images = held["X"]
    if images.ndim != 4 or images.shape[2] != 3:
        raise InputError(f"{file}: X has shape {images.shape}; it must be (32, 32, 3, N)")
    labels = checked_labels(held["y"], images.shape[3], str(file))
    unknown = labels[(labels < 1) | (labels > 10)]
    if unknown.size:
        raise InputError(
            f"{file}: label {unknown[0]} is unknown; SVHN's labels are 1 to 10, where 10 means the digit 0"
        )
    images = np.ascontiguousarray(images.transpose(3, 0, 1, 2))
    return ArraySource(_name(path, part), images, labels % 10, DIGITS, numbered(file.stem, len(images)))


def holds_official_files(folder: Path) -> str | None:
    """Returns "mnist", "cifar10" or "svhn" if a folder holds such files, else None."""
    kinds = {"mnist": _mnist_files, "cifar10": _cifar10_files, "svhn": _svhn_files}
    return next((kind for kind, files in kinds.items() if files(folder)), None)


def _mnist_files(folder: Path) -> dict[str, Path]:
    """The images files by part; a plain file comes before its gzipped twin."""
    parts = {"train": "train-images", "test": "t10k-images"}
    found = {part: sorted(folder.glob(f"{prefix}*idx3-ubyte*")) for part, prefix in parts.items()}
    return {part: files[0] for part, files in found.items() if files}


def _cifar10_files(folder: Path) -> dict[str, list[Path]]:
    """The batches by part."""
    parts = {"train": "data_batch_*.bin", "test": "test_batch.bin"}
    found = {part: sorted(folder.glob(pattern)) for part, pattern in parts.items()}
    return {part: files for part, files in found.items() if files}


def _svhn_files(folder: Path) -> dict[str, Path]:
    """The files of cropped digits by part."""
    files = {part: folder / f"{part}_32x32.mat" for part in ("train", "test", "extra")}
    return {part: file for part, file in files.items() if file.is_file()}


def _chosen(folder: Path, part: str | None, found: Mapping[str, Held]) -> Held:
    """What a folder holds of one part."""
    if not found:
        raise InputError(f"{folder}: it holds no files under their official names; name a file instead")
    if part is None and len(found) == 1:
        return next(iter(found.values()))
    if part is None or part not in found:
        told = f"part is {part!r}" if part else "the part is not said"
        raise OptionError(
            f"{folder}: {told}; its parts are {', '.join(found)}; add one to the path, as in "
            f"{folder.name}:{next(iter(found))}"
        )
    return found[part]


def _alone(file: Path, part: str | None) -> Path:
    if part is not None:
        raise OptionError(f"{file}: part is {part!r}; one file is one part; leave it out, or give the folder")
    return file


def _name(path: Path, part: str | None) -> str:
    """The last word of a path, with the part."""
    name = path.resolve().name
    return f"{name}/{part}" if part else name


def _labels_beside(images: Path) -> Path:
    """The labels file that belongs to an images file."""
    plain = images.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    beside = [images.with_name(plain), images.with_name(f"{plain}.gz")]
    found = [file for file in beside if file != images and file.is_file()]
    if not found:
        raise InputError(f"{images}: its labels are missing; put {plain} or {plain}.gz beside it")
    return found[0]


def _idx(path: Path, rank: int, what: str) -> NDArray[np.uint8]:
    """The bytes in an idx file: two zeros, type, rank, sides as big-endian 32-bit numbers, then the values."""
    content = _content(path)
    if content[:2] != b"\0\0" or len(content) < 4 + 4 * rank:
        raise InputError(f"{path}: it begins with {content[:4].hex(' ') or 'nothing'}; an idx file begins with 00 00")
    if content[2] != IDX_BYTES or content[3] != rank:
        raise InputError(
            f"{path}: its magic number is {content[:4].hex(' ')}; {what} are 00 00 {IDX_BYTES:02x} {rank:02x}, "
            f"unsigned bytes of rank {rank}; check which file this is"
        )
    shape = struct.unpack_from(f">{rank}I", content, 4)
    start = 4 + 4 * rank
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{path}: its header states {'×'.join(map(str, shape))} bytes, {len(content) - start} follow; "
            "it is cut short or damaged; download it again"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _content(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is gzipped."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: it cannot be unpacked ({error}); it is cut short or damaged") from error
    except OSError as error:
        raise InputError(
            f"{path}: it cannot be opened ({error.strerror}); check the name and the permissions"
        ) from error


def _cifar10_records(path: Path) -> NDArray[np.uint8]:
    """The records of one batch, (N, 3073)."""
    content = _content(path)
    if not content or len(content) % CIFAR10_RECORD:
        raise InputError(
            f"{path}: it has {len(content)} bytes; a batch of CIFAR-10 has {CIFAR10_RECORD} per image; "
            "it is cut short or something else; download it again"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, CIFAR10_RECORD)
    if rows[:, 0].max() > 9:
        raise InputError(f"{path}: label {rows[:, 0].max()} is unknown; CIFAR-10's labels are 0 to 9")
    return rows
