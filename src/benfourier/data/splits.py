"""Splits that share no source image: seeded, stratified by label, independent of the order of the rows."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.data.seeds import image_seed
from benfourier.data.sources import checked_labels
from benfourier.errors import InputError, OptionError, check_seed, check_whole

PARTS: Mapping[str, float] = MappingProxyType({"fit": 0.64, "calibrate": 0.16, "test": 0.20})
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Fold:
    """One round of cross-validation: rows to fit on and rows to measure on."""

    train: Indices
    test: Indices


def split(
    ids: Sequence[str], labels: ArrayLike, parts: Mapping[str, float] = PARTS, *, seed: int
) -> dict[str, Indices]:
    """Returns the rows of each part, in ascending order; rows with the same id are always in the same part.

    In every class the ids are sorted by a hash of seed and id, then cut, so the order of the rows does not matter.
    What rounding leaves over in one class is made up for in the next: no part's total exceeds its share by one, unless
    a class is so small that a part gets one image only because each part needs one.

    Args:
        ids: source image of each row; several rows may share one.
        labels: class of each row; one number for all splits without regard to class.
        parts: share of each part; they add up to 1.
        seed: another seed gives another split.
    """
    shares = np.array(list(parts.values()), np.float64)
    if not len(shares) or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise OptionError(f"parts are {dict(parts)}; they must be positive shares that add up to 1")
    chosen: list[list[int]] = [[] for _ in parts]
    owed = np.zeros(len(parts))
    for label, sources in _rows_by_class(ids, labels, seed).items():
        if len(sources) < len(parts):
            raise InputError(
                f"class {label} has {len(sources)} source images for {len(parts)} parts; each part needs one: give "
                "more images, leave the class out, or pass the same label for all rows to split without regard to class"
            )
        counts = _counts(len(sources), shares, owed)
        ends = np.cumsum(counts)
        for part, start, end in zip(chosen, ends - counts, ends, strict=True):
            part.extend(row for rows in sources[start:end] for row in rows)
    return {name: np.sort(np.array(part, np.intp)) for name, part in zip(parts, chosen, strict=True)}


def folds(ids: Sequence[str], labels: ArrayLike, number: int, *, seed: int) -> tuple[Fold, ...]:
    """Returns rounds of cross-validation; each row is tested once, never beside a twin that was fitted on."""
    check_whole("number", number, least=2)
    tests = split(ids, labels, {str(place): 1 / number for place in range(number)}, seed=seed)
    return tuple(Fold(np.setdiff1d(np.arange(len(ids)), test), test) for test in tests.values())


def stratified_order(ids: Sequence[str], labels: ArrayLike, *, seed: int) -> Indices:
    """Returns all rows in an order in which every prefix has the classes in their shares, as far as it can.

    In every class the ids are sorted by a hash of seed and id, and the classes take turns.
    """
    turns: list[tuple[float, int, list[int]]] = []
    for label, sources in _rows_by_class(ids, labels, seed).items():
        turns += [((place + 0.5) / len(sources), label, rows) for place, rows in enumerate(sources)]
    return np.array([row for *_, rows in sorted(turns) for row in rows], np.intp)


def hash_rank(seed: int, name: str) -> int:
    """Returns the rank of one image in a draw: the images with the lowest ranks are drawn."""
    return image_seed(seed, f"lot\0{name}")  # the word is part of the hash, and so of every result


def _rows_by_class(ids: Sequence[str], labels: ArrayLike, seed: int) -> dict[int, list[list[int]]]:
    """The rows of each source image, by class in ascending order; a hash of seed and id orders the source images."""
    check_seed(seed)
    by_class: dict[int, dict[str, list[int]]] = {}
    known: dict[str, int] = {}
    for row, (source, label) in enumerate(zip(ids, checked_labels(labels, len(ids), "split").tolist(), strict=True)):
        if known.setdefault(source, label) != label:
            problem = f"id {source!r} has the labels {known[source]} and {label}"
            raise InputError(f"{problem}; twins share their source's label")
        by_class.setdefault(label, {}).setdefault(source, []).append(row)

    def rank(source: str) -> tuple[bytes, str]:
        return hashlib.sha256(f"{seed}:{source}".encode()).digest(), source

    return {label: [sources[name] for name in sorted(sources, key=rank)] for label, sources in sorted(by_class.items())}


def _counts(total: int, shares: NDArray[np.float64], owed: NDArray[np.float64]) -> NDArray[np.intp]:
    """How many sources of one class each part gets, at least one; owed is brought up to date.

    Units left after rounding down go to the part that is owed most. That part was owed more than 0 and is then owed
    more than −1; the others are owed more than before. So no part ever has one too many.
    """
    counts = np.maximum(np.floor(total * shares + 1e-9).astype(np.intp), 1)
    owed += total * shares
    while counts.sum() > total:
        counts[np.argmax(np.where(counts > 1, counts - total * shares, -np.inf))] -= 1
    while counts.sum() < total:
        counts[np.argmax(owed - counts)] += 1
    owed -= counts
    return counts
