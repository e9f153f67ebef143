"""What every source of labelled images looks like, whatever it is read from."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.errors import InputError

CLASSES = 1_000_000  # at most; a greater label is no place of a class


class Source(Protocol):
    """Labelled 8-bit images, each with an id that never depends on its place in a batch."""

    @property
    def name(self) -> str:
        """What to call it in messages and tables."""
        ...

    @property
    def ids(self) -> tuple[str, ...]:
        """One per image, unique and the same whenever the source is opened."""
        ...

    @property
    def labels(self) -> NDArray[np.int64]:
        """One per image, each the place of its name in classes."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the source holds, in hexadecimal."""
        ...

    def __len__(self) -> int:
        """Number of images."""
        ...

    def pixels(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """Returns the images at some places, (n, H, W, C); raises ImageError if one of them cannot be read."""
        ...


def checked_indices(indices: Any, count: int) -> NDArray[np.intp]:
    """Returns places as an array of integers, or raises InputError unless each is in 0..count-1."""
    found = np.asarray(indices)
    if found.ndim != 1 or (found.size and not np.issubdtype(found.dtype, np.integer)):
        raise InputError(f"indices are {found.dtype} of shape {found.shape}; they must be a list of whole numbers")
    outside = found[(found < 0) | (found >= count)]
    if outside.size:
        raise InputError(f"index {outside[0]} is outside; there are {count} images, counted from 0")
    return found.astype(np.intp)


def checked_labels(labels: Any, count: int, where: str) -> NDArray[np.int64]:
    """Returns labels as int64 (count,), or raises InputError unless they are that many whole numbers from 0 on."""
    found = np.asarray(labels)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise InputError(
            f"{where}: labels are {found.dtype} of shape {found.shape}; they must be integers, one per image"
        )
    if len(found) != count:
        raise InputError(f"{where}: there are {count} images and {len(found)} labels; each image needs one label")
    if found.size and found.min() < 0:
        raise InputError(f"{where}: label {found.min()} is unknown; labels count classes from 0")
    if found.size and found.max() >= CLASSES:
        raise InputError(f"{where}: label {found.max()} is too large; labels count classes, {CLASSES:,} at most")
    return found.astype(np.int64)


def classes_apart(one: tuple[str, ...], other: tuple[str, ...]) -> str | None:
    """Returns how the classes of two sources differ, if they do; a bare number may stand for its class's name."""
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} classes"
    pairs = enumerate(zip(one, other, strict=True))
    return next((f"{a!r} and {b!r} as class {n}" for n, (a, b) in pairs if a != b and str(n) not in (a, b)), None)


def check_unique(ids: tuple[str, ...], where: str) -> None:
    """Raises InputError if an id occurs twice."""
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(i for i in ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
        raise InputError(f"{where}: id {twice!r} occurs twice; every image needs an id of its own")
