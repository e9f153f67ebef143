"""Images with their classes and ids, and how a source is read into them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from benfourier.data.sources import Source, check_ids, checked_indices
from benfourier.errors import ImageError, InputError, check_whole
from benfourier.progress import bar


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images with their true classes."""

    images: Tensor  # (N, C, H, W): uint8 as read from a source, or floating within a classifier's bounds
    labels: Tensor  # int64 (N,), the true classes
    ids: tuple[str, ...] = ()  # source image of each row, unique; by default the row as text: "0", "1" and so on

    def __post_init__(self) -> None:
        labels = torch.as_tensor(self.labels)
        count = len(self.images)
        if labels.is_floating_point() or labels.dtype == torch.bool or labels.shape != (count,):
            problem = f"labels are {labels.dtype} of shape {tuple(labels.shape)}"
            raise InputError(f"{problem}; they must be whole numbers ({count},)")
        object.__setattr__(self, "labels", labels.long())
        object.__setattr__(self, "ids", tuple(self.ids) or tuple(map(str, range(count))))
        check_ids(self.ids, count, "labelled images")

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Sequence[int] | Tensor | NDArray[np.intp]) -> "LabelledImages":
        """Returns the images of some rows, in their order; those of a range share memory with these."""
        if isinstance(rows, range) and rows.step == 1 and 0 <= rows.start <= rows.stop <= len(self):
            part = slice(rows.start, rows.stop)
            return LabelledImages(self.images[part], self.labels[part], self.ids[part])
        places = torch.as_tensor(rows, dtype=torch.long)
        return LabelledImages(self.images[places], self.labels[places], tuple(self.ids[row] for row in places.tolist()))

    def joined(self, *others: "LabelledImages") -> "LabelledImages":
        """Returns these images followed by those of others; no id may occur twice."""
        parts = (self, *others)
        images, labels = torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
        return LabelledImages(images, labels, tuple(name for part in parts for name in part.ids))

    def without(self, content_ids: Collection[str]) -> "LabelledImages":
        """Returns the images whose content ids are not among the given ones."""
        excluded = frozenset(content_ids)
        return self.take([row for row, name in enumerate(self.content_ids) if name not in excluded])

    @cached_property
    def content_ids(self) -> tuple[str, ...]:
        """One id per image that its pixels alone decide."""
        return content_ids(self.images)


@dataclass(frozen=True)
class UnreadableImage:
    """An image that could not be read, and why."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


Unreadable = list[UnreadableImage] | None  # a list to add images to that cannot be read; None raises an error


def content_ids(images: Tensor) -> tuple[str, ...]:
    """Returns one id per image made from its pixels, 128 bits in hexadecimal."""
    rows = images.detach().to("cpu", torch.float32).contiguous().flatten(1).numpy()
    return tuple(blake2b(row.tobytes(), digest_size=16).hexdigest() for row in rows)


def read(
    source: Source, rows: ArrayLike | None = None, unreadable: Unreadable = None, *, show: bool | None = None
) -> LabelledImages:
    """Returns images of a source, uint8 (N, C, H, W): those of some rows, by default all.

    Images that cannot be read are added to the list `unreadable`; without one, the first raises ImageError.
    """
    chosen = checked_indices(range(len(source)) if rows is None else rows, len(source))
    parts: list[LabelledImages] = []
    before = len(unreadable or ())
    with bar(len(chosen), f"reading {source.name}", show=show) as advance:
        for batch in batches(source, chosen, unreadable):
            parts.append(batch)
            advance(len(batch))
        advance(len(unreadable or ()) - before)
    if not parts:
        first = f"; the first: {unreadable[before]}" if unreadable and len(unreadable) > before else ""
        raise ImageError(f"{source.name}: none of the {len(chosen)} images asked for can be read{first}")
    return parts[0].joined(*parts[1:])


def batches(
    source: Source, rows: ArrayLike | None = None, unreadable: Unreadable = None, *, size: int = 64
) -> Iterator[LabelledImages]:
    """Yields images of a source in order, at most size at once; rows and unreadable are those of `read`."""
    check_whole("size", size)
    chosen = checked_indices(range(len(source)) if rows is None else rows, len(source))
    for start in range(0, len(chosen), size):
        batch = _read_batch(source, chosen[start : start + size], unreadable)
        if len(batch):
            yield batch


def _read_batch(source: Source, rows: NDArray[np.intp], unreadable: Unreadable) -> LabelledImages:
    """The images that can be read; one by one only if one of them cannot."""
    try:
        pixels = source.pixels(rows)
    except ImageError:
        if unreadable is None:
            raise
        good: list[int] = []
        parts = [source.pixels([])]
        for row in rows.tolist():
            try:
                parts.append(source.pixels([row]))
                good.append(row)
            except ImageError as error:  # its message begins with the path
                before, colon, reason = str(error).partition(f"{source.ids[row]}: ")
                unreadable.append(UnreadableImage(source.ids[row], reason if colon else before))
        rows, pixels = np.array(good, np.intp), np.concatenate(parts)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)  # a view: channels stay last in memory
    return LabelledImages(images, torch.from_numpy(source.labels[rows]), tuple(source.ids[row] for row in rows))
