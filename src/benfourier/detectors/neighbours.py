"""Distances of responses to those of reference images, and the local intrinsic dimension that they show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from benfourier.detectors.listening import INPUT, listen
from benfourier.errors import InputError
from benfourier.subjects.features import MEMORY, fitting_batch
from benfourier.subjects.subject import Subject

LEAST = 1e-12  # distance below which points coincide
NEAR = 0.01  # share of the squared lengths below which |a|² + |b|² − 2ab has lost digits
FULL = 2**30  # bytes of responses kept in float32
MOST = 2**32  # bytes kept at all
LARGE = 4096  # entries from which on rounding to bfloat16 averages out
BLOCK = 2**22  # entries at once where rows are subtracted
PIECE = 2**13  # entries of a row at once where rows are widened


def matrix(response: Tensor) -> Tensor:
    """Returns a response as (images, entries), without a copy if the network works channels-last.

    Distances do not ask for the order of the entries, as long as it is always the same.
    """
    rows = response.permute(0, 2, 3, 1) if response.ndim == 4 else response
    return rows.reshape(len(rows), -1)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The responses of one layer to reference images.

    Args:
        rows: (references, entries), less their middle; bfloat16 where memory is short.
        middle: what was subtracted, (entries,), so that lengths are not much larger than distances.
    """

    rows: Tensor
    middle: Tensor

    @cached_property
    def _lengths(self) -> Tensor:
        return torch.stack([row.to(self.middle.dtype).square().sum() for row in self.rows])

    def _products(self, queries: Tensor) -> Tensor:
        """Inner products (queries, references); narrow rows are widened in pieces that stay in cache."""
        if self.rows.dtype == queries.dtype:
            return (self.rows @ queries.T).T
        found = queries.new_zeros(len(queries), len(self.rows))
        for start in range(0, self.rows.shape[1], PIECE):
            part = slice(start, start + PIECE)
            found = found + queries[:, part] @ self.rows[:, part].to(queries.dtype).T
        return found

    def squared(self, queries: Tensor) -> Tensor:
        """Returns squared distances (queries, references), by subtraction where points are near each other."""
        queries = queries - self.middle
        lengths = queries.square().sum(1, keepdim=True) + self._lengths
        found = lengths - 2 * self._products(queries)
        row, place = (found < NEAR * lengths).nonzero(as_tuple=True)
        if not len(row):
            return found
        size = max(1, BLOCK // self.rows.shape[1])
        pairs = zip(torch.split(row, size), torch.split(place, size), strict=True)
        exact = [(queries[i] - self.rows[j].to(queries.dtype)).square().sum(1) for i, j in pairs]
        return found.index_put((row, place), torch.cat(exact))


def local_dimensions(squared: Tensor, ks: tuple[int, ...], entries: int, *, without_nearest: bool = False) -> Tensor:
    """Returns −(1/k Σ_i ln(r_i / r_k))⁻¹ over the k nearest, for every k, (..., len(ks)), float64.

    Neighbours that all coincide with the query have dimension 0. No dimension exceeds the number of entries: so much
    have neighbours that are all equally far.

    Args:
        squared: squared distances (..., references), infinite for those left out; at least max(ks) are finite.
        ks: how many neighbours count.
        entries: of the layer.
        without_nearest: leave the nearest one out.
    """
    first = int(without_nearest)
    nearest = squared.topk(max(ks) + first, largest=False, sorted=True).values[..., first:]
    logs = nearest.double().clamp(min=LEAST**2).log() / 2
    found = []
    for k in ks:
        total = (logs[..., k - 1 : k] - logs[..., :k]).sum(-1)
        apart = nearest[..., k - 1] > LEAST**2
        found.append((k / total.clamp(min=k / entries)) * apart)
    return torch.stack(found, -1)


def entries_of(subject: Subject, images: Tensor, layers: tuple[str, ...]) -> tuple[int, ...]:
    """Returns how many entries each layer's response to one image has."""
    plan = subject.plan(tuple(images.shape[1:]))
    entries = {layer.name: layer.entries for layer in plan.layers} | {INPUT: images[0].numel()}
    return tuple(entries[name] for name in layers)


def precise(size: int) -> bool:
    """Returns whether responses of so many bytes in float32 are kept as they are."""
    return size <= FULL


def recall(subject: Subject, images: Tensor, ids: Sequence[str], layers: tuple[str, ...]) -> dict[str, Neighbours]:
    """Returns the subject's responses to reference images, layer by layer.

    They stay in memory: float32 up to FULL bytes, bfloat16 up to MOST bytes, beyond that InputError.
    """
    total = 4 * len(images) * sum(entries_of(subject, images, layers))
    if total > 2 * MOST:
        raise InputError(
            f"the responses of {len(layers)} layers to {len(images)} reference images take {total / 2**31:.1f} GiB in "
            f"half precision; at most {MOST / 2**30:g} GiB are kept: choose some layers, or a smaller mini-batch"
        )
    short = not precise(total)
    size = fitting_batch(subject.plan(tuple(images.shape[1:])), MEMORY, subject.dtype.itemsize)
    pieces: dict[str, list[Tensor]] = {name: [] for name in layers}
    with torch.no_grad():
        for start in range(0, len(images), size):
            part = slice(start, start + size)
            listen(subject, images[part], [_Recall(layers, pieces, short)], ids[part])
    return {name: _centred(torch.cat(pieces.pop(name))) for name in layers}


@dataclass(frozen=True, eq=False)
class Recalled(Mapping[str, Neighbours]):
    """What `recall` returns, made once it is asked for."""

    subject: Subject
    images: Tensor
    ids: tuple[str, ...]
    layers: tuple[str, ...]

    @cached_property
    def _found(self) -> dict[str, Neighbours]:
        return recall(self.subject, self.images, self.ids, self.layers)

    def __getitem__(self, name: str) -> Neighbours:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)


def _centred(rows: Tensor) -> Neighbours:
    wide = torch.promote_types(rows.dtype, torch.float32)
    middle = rows.mean(0, dtype=wide)
    for row in rows:  # in place, and one by one: the responses of all layers fill the memory
        row -= middle
    return Neighbours(rows, middle)


@dataclass(frozen=True, eq=False)
class _Recall:
    """Keeps all it hears."""

    layers: tuple[str, ...]
    pieces: dict[str, list[Tensor]]
    short: bool

    def ear(self, ids: Sequence[str]) -> "_Recall":
        return self

    def hear(self, name: str, response: Tensor) -> None:
        rows = matrix(response)
        narrow = self.short and rows.shape[1] >= LARGE
        dtype = torch.bfloat16 if narrow else torch.promote_types(rows.dtype, torch.float32)
        self.pieces[name].append(rows.to(dtype, copy=True))

    def numbers(self, logits: Tensor) -> Tensor:
        return logits.new_zeros(len(logits), 1)
