"""Images that lie in one array, and `.npz` files of such arrays."""

import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.data.source import check_unique, checked_indices, checked_labels
from benfourier.errors import ImageError, InputError, OptionError
from benfourier.store.digest import digest_of

# What NumPy and its unpacking raise on files that are broken, cut short, encrypted, or hold Python objects.
FAULTS = (
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True, eq=False)
class ArraySource:
    """A source whose images lie in memory.

    Args:
        name: what to call it in messages and tables.
        images: uint8 (N, H, W), or (N, H, W, C) with 1 or 3 channels.
        labels: integers, one per image, each the place of a class.
        classes: names of the classes; by default the numbers up to the largest label.
        ids: one per image; by default the name and the place, "name/00017".
    """

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        images = _checked_images(self.images, self.name)
        labels = checked_labels(self.labels, len(images), self.name)
        classes = tuple(self.classes) or tuple(map(str, range(int(labels.max()) + 1)))
        if labels.max() >= len(classes):
            raise InputError(
                f"{self.name}: label {labels.max()} is unknown; there are {len(classes)} classes, from 0 on"
            )
        ids = tuple(self.ids) or numbered(self.name, len(images))
        if len(ids) != len(images):
            raise InputError(f"{self.name}: there are {len(images)} images and {len(ids)} ids; each image needs one id")
        check_unique(ids, self.name)
        for field, value in (("images", images), ("labels", labels), ("classes", classes), ("ids", ids)):
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of ids, classes, labels and pixels."""
        return digest_of((*self.ids, "classes", *self.classes, self.labels, self.images))

    def pixels(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """Returns a copy of the images at some places, (n, H, W, C)."""
        found: NDArray[np.uint8] = self.images[checked_indices(indices, len(self))]
        return found


def numbered(prefix: str, count: int) -> tuple[str, ...]:
    """Returns ids made of a prefix and the place in a file."""
    return tuple(f"{prefix}/{place:05d}" for place in range(count))


def npz(path: str | PathLike[str], part: str | None = None) -> ArraySource:
    """Returns the images in an `.npz` file under the keys x and y, or x_part and y_part.

    Args:
        path: the file; its arrays are x, uint8 (N, H, W) or (N, H, W, C), and y, integers.
        part: "test" for the keys x_test and y_test, and so on; None for x and y.
    """
    path = Path(path)
    try:
        # opened here, since NumPy leaves files open that it cannot read
        with path.open("rb") as file:
            held = np.load(file, allow_pickle=False)
            if not isinstance(held, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: it holds one array, not several; save it with np.savez(path, x=..., y=...)")
            tail = _tail(held.files, part, path)
            images, labels = held[f"x{tail}"], held[f"y{tail}"]
            others = [held[key] for key in held.files if key[:1] == "y" and f"x{key[1:]}" in held.files]
    except InputError:
        raise
    except FAULTS as error:
        raise InputError(f"{path}: it cannot be read as .npz without pickle ({error}); save it again") from error
    name = f"{path.stem}/{part}" if part else path.stem
    images = _checked_images(images, str(path))
    labels = checked_labels(labels, len(images), str(path))
    # the parts of one file have the same classes, even if the last one is missing in some
    parts = [checked_labels(y, len(y), str(path)) for y in others if y.ndim and np.issubdtype(y.dtype, np.integer)]
    count = 1 + max(int(y.max()) for y in (labels, *parts) if y.size)
    return ArraySource(name, images, labels, tuple(map(str, range(count))))


def _tail(keys: Sequence[str], part: str | None, path: Path) -> str:
    """What follows x and y in the keys of that part."""
    parts = sorted(key[2:] for key in keys if key.startswith("x_") and f"y_{key[2:]}" in keys)
    plain = "x" in keys and "y" in keys
    if not plain and not parts:
        raise InputError(
            f"{path}: its keys are {', '.join(keys) or 'none'}; they must be x and y, "
            "or x_train, y_train, x_test and y_test"
        )
    if part is None and plain:
        return ""
    if part is None or part not in parts:
        told = f"part is {part!r}" if part else "the part is not said"
        allowed = (
            f"its parts are {', '.join(parts)}; add one to the path, as in {path.name}:{parts[0]}" if parts else ""
        )
        raise OptionError(f"{path}: {told}; {allowed or 'it has no parts; leave it out'}")
    return f"_{part}"


def _checked_images(images: NDArray[np.uint8], where: str) -> NDArray[np.uint8]:
    """The images as (N, H, W, C) that cannot be written to."""
    images = np.asarray(images)
    if images.dtype != np.uint8:
        raise ImageError(f"{where}: images are {images.dtype}; they must be uint8, from 0 to 255")
    shaped = images[..., None] if images.ndim == 3 else images
    if shaped.ndim != 4 or shaped.shape[3] not in (1, 3) or shaped.size == 0:
        raise ImageError(
            f"{where}: images have shape {images.shape}; it must be (N, H, W), or (N, H, W, C) with 1 or 3 channels, "
            "and none of these 0; x.transpose(0, 2, 3, 1) puts channels last"
        )
    shaped = shaped.view()
    shaped.flags.writeable = False
    return shaped
