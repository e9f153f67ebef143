"""Images of a source in batches; files that cannot be read are put on a list and the run goes on."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.data.source import Source, checked_indices
from benfourier.errors import ImageError, check_whole
from benfourier.progress import bar


@dataclass(frozen=True)
class Refusal:
    """An image that could not be read, and why."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with what belongs to them: places in the source, ids, labels, pixels (n, H, W, C)."""

    indices: NDArray[np.intp]
    ids: tuple[str, ...]
    labels: NDArray[np.int64]
    pixels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: list[int]) -> "Batch":
        """Returns some of the images."""
        return Batch(self.indices[rows], tuple(self.ids[row] for row in rows), self.labels[rows], self.pixels[rows])


@dataclass(frozen=True, eq=False)
class Reading:
    """All images that could be read, and the refusals."""

    images: Batch
    refusals: tuple[Refusal, ...]


def batches(
    source: Source,
    refusals: list[Refusal],
    indices: ArrayLike | None = None,
    *,
    size: int = 64,
    strict: bool = False,
) -> Iterator[Batch]:
    """Yields the images of a source in order, without those that cannot be read.

    Args:
        source: where the images come from.
        refusals: a list to which each image that cannot be read is added.
        indices: which images; None for all.
        size: images per batch, at most.
        strict: raise ImageError at the first image that cannot be read instead.
    """
    check_whole("size", size)
    chosen = checked_indices(range(len(source)) if indices is None else indices, len(source))
    for start in range(0, len(chosen), size):
        batch = _batch(source, chosen[start : start + size], refusals, strict=strict)
        if len(batch):
            yield batch


def read(
    source: Source, indices: ArrayLike | None = None, *, strict: bool = False, show: bool | None = None
) -> Reading:
    """Returns all images of a source that can be read, and a list of the others.

    Args:
        source: where the images come from.
        indices: which images; None for all.
        strict: raise ImageError at the first image that cannot be read.
        show: True or False to force a progress bar; None draws it only on a terminal.
    """
    chosen = checked_indices(range(len(source)) if indices is None else indices, len(source))
    refusals: list[Refusal] = []
    found: list[Batch] = []
    with bar(len(chosen), f"reading {source.name}", show=show) as advance:
        for batch in batches(source, refusals, chosen, strict=strict):
            found.append(batch)
            advance(len(batch))
        advance(len(refusals))
    if not found:
        told = f"; the first: {refusals[0]}" if refusals else ""
        raise ImageError(f"{source.name}: none of the {len(chosen)} images asked for can be read{told}")
    indices = np.concatenate([batch.indices for batch in found])
    return Reading(_with(source, indices, np.concatenate([batch.pixels for batch in found])), tuple(refusals))


def _batch(source: Source, chosen: NDArray[np.intp], refusals: list[Refusal], *, strict: bool) -> Batch:
    """The images that can be read; one by one only if one of them cannot."""
    try:
        return _with(source, chosen, source.pixels(chosen))
    except ImageError:
        if strict:
            raise
    good: list[int] = []
    pixels = [source.pixels([])]
    for index in chosen.tolist():
        try:
            pixels.append(source.pixels([index]))
        except ImageError as error:
            refusals.append(_refusal(source.ids[index], str(error)))
        else:
            good.append(index)
    return _with(source, np.array(good, np.intp), np.concatenate(pixels))


def _with(source: Source, indices: NDArray[np.intp], pixels: NDArray[np.uint8]) -> Batch:
    return Batch(indices, tuple(source.ids[index] for index in indices), source.labels[indices], pixels)


def _refusal(file: str, message: str) -> Refusal:
    """The message without the path that it begins with."""
    before, colon, reason = message.partition(f"{file}: ")
    return Refusal(file, reason if colon else before)
