"""Activations as rows of numbers, and which entries of a long row are read."""

from functools import lru_cache
from math import prod

import numpy as np
import torch
from torch import Tensor


def rows_of(activations: Tensor) -> Tensor:
    """Activations as (images, entries), contiguous; entries in memory order, so that dense layouts need no copy."""
    rows = activations.permute(0, *_memory_order(activations)).contiguous()
    return rows.view(len(rows), prod(activations.shape[1:]))


def offsets_of(activations: Tensor, entries: int | None) -> Tensor | None:
    """Places in each row of `rows_of` that are read, int64 (entries,); None if all are.

    They name the same entries in the same order for every image, batch, memory layout and device.
    """
    if entries is None or prod(activations.shape[1:]) <= entries:
        return None
    return _offsets(tuple(activations.shape[1:]), _memory_order(activations), entries, activations.device)


def sample_rows(activations: Tensor, entries: int | None) -> Tensor:
    """Activations as (images, M), where M is at most `entries`; None reads all entries."""
    rows, offsets = rows_of(activations), offsets_of(activations, entries)
    return rows if offsets is None else rows.index_select(1, offsets)


def stratified_places(size: int, entries: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """One fixed place in each of `entries` equal strata of range(size), ascending.

    A constant stride would be in step with rows or channels: on a channels-last map of 64 channels, a stride of 8 reads
    8 channels only.
    """
    bounds = np.arange(entries + 1, dtype=np.int64) * size // entries
    jitter = np.random.PCG64(0).random_raw(entries)  # NumPy promises the same raw draws in every version
    return np.asarray(bounds[:-1] + (jitter % np.diff(bounds).astype(np.uint64)).astype(np.int64))


def _memory_order(activations: Tensor) -> tuple[int, ...]:
    """Dimensions after the first, from the slowest to the fastest in memory."""
    return tuple(sorted(range(1, activations.ndim), key=activations.stride, reverse=True))


@lru_cache(512)
def _offsets(shape: tuple[int, ...], order: tuple[int, ...], entries: int, device: torch.device) -> Tensor:
    """Places in memory of the sample, which is drawn in logical (C, H, W) order."""
    index = np.unravel_index(stratified_places(prod(shape), entries), shape)
    layout = [dimension - 1 for dimension in order]
    offsets = np.ravel_multi_index([index[d] for d in layout], [shape[d] for d in layout])
    return torch.from_numpy(np.asarray(offsets, np.int64)).to(device)  # once: a GPU must not wait for it in every batch
