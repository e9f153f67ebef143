"""Sources of labelled 8-bit images: in memory, with coarser classes, a part of one, or several as one."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.errors import ImageError, InputError, OptionError
from benfourier.store.artifact import digest_of

MAX_CLASSES = 1_000_000  # a greater label is no place of a class
RANGE = re.compile(r"(\d+)-(\d+)")
Content = Iterable[str | bytes | NDArray[np.generic]]
Groups = Mapping[str, Sequence[int | str]]


class Source(ABC):
    """Labelled 8-bit images, each with an id that never depends on its place in a batch.

    Subclasses are frozen dataclasses; what is not among their fields is set by `__post_init__`.
    """

    name: str  # what to call it in messages and tables
    labels: NDArray[np.int64]  # one per image, each the place of its name in classes, (N,)
    classes: tuple[str, ...]  # names of the classes, in the order of the labels
    ids: tuple[str, ...]  # one per image, unique and the same whenever the source is opened

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that the source holds, in hexadecimal."""
        return digest_of(self._content())

    def pixels(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """Returns the images at some places, (n, H, W, C); raises ImageError if one of them cannot be read."""
        return self._pixels(checked_indices(indices, len(self)))

    @abstractmethod
    def _pixels(self, places: NDArray[np.intp]) -> NDArray[np.uint8]:
        """A copy of the images at some places."""

    @abstractmethod
    def _content(self) -> Content:
        """What the digest covers."""


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """A source whose images lie in memory."""

    name: str
    images: NDArray[np.uint8]  # (N, H, W), or (N, H, W, C) with 1 or 3 channels
    labels: NDArray[np.int64]  # integers, one per image, each the place of a class
    classes: tuple[str, ...] = ()  # by default the numbers up to the largest label
    ids: tuple[str, ...] = ()  # by default the name and the place, "name/00017"

    def __post_init__(self) -> None:
        images = checked_images(self.images, self.name)
        labels = checked_labels(self.labels, len(images), self.name)
        classes = tuple(self.classes) or tuple(map(str, range(int(labels.max()) + 1)))
        if labels.max() >= len(classes):
            problem = f"label {labels.max()} is unknown"
            raise InputError(f"{self.name}: {problem}; there are {len(classes)} classes, from 0 on")
        ids = tuple(self.ids) or numbered_ids(self.name, len(images))
        check_ids(ids, len(images), self.name)
        _set(self, images=images, labels=labels, classes=classes, ids=ids)

    def _pixels(self, places: NDArray[np.intp]) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = self.images[places]
        return pixels

    def _content(self) -> Content:
        return (*self.ids, "classes", *self.classes, self.labels, self.images)


@dataclass(frozen=True, eq=False)
class GroupedSource(Source):
    """The images of a source whose classes are in some groups; the groups are the new classes."""

    source: Source
    groups: Groups  # by name, classes of the source: their number, "7-24" for numbers from 7 to 24, or their name
    rows: NDArray[np.intp] = field(init=False)  # places in the source, in order

    def __post_init__(self) -> None:
        group = group_of_class(self.groups)
        for label, name in enumerate(self.source.classes):
            both = {group[key] for key in (label, name) if key in group}
            if len(both) > 1:
                names = " and ".join(list(self.groups)[place] for place in sorted(both))
                raise OptionError(f"{names} both hold class {label}, {name!r}; a class has one group at most")
        places = [group.get(label, group.get(name, -1)) for label, name in enumerate(self.source.classes)]
        labels = np.array(places, np.int64)[self.source.labels]
        rows = np.flatnonzero(labels >= 0)
        if not len(rows):
            raise InputError(f"{self.source.name}: none of its {len(self.source)} images is of a group; look at both")
        ids = tuple(self.source.ids[row] for row in rows)
        _set(self, name=self.source.name, classes=tuple(self.groups), ids=ids, labels=labels[rows], rows=rows)

    def unknown_groups(self) -> list[str]:
        """Returns groups of which the source has no image, and names of classes that it does not know."""
        empty = [name for place, name in enumerate(self.groups) if place not in self.labels]
        names = [name for name in group_of_class(self.groups) if isinstance(name, str)]
        return empty + [name for name in names if name not in self.source.classes]

    def _pixels(self, places: NDArray[np.intp]) -> NDArray[np.uint8]:
        return self.source.pixels(self.rows[places])

    def _content(self) -> Content:
        return (self.source.digest, *self.classes, self.rows, self.labels)


@dataclass(frozen=True, eq=False)
class SubsetSource(Source):
    """The images of a source that are outside some ranges of places."""

    source: Source
    skip: tuple[str, ...]  # ranges such as "0-249", both ends included
    rows: NDArray[np.intp] = field(init=False)  # places in the source, in order

    def __post_init__(self) -> None:
        skipped = np.zeros(len(self.source), bool)
        for first, last in (each.split("-") for each in self.skip):
            skipped[int(first) : int(last) + 1] = True
        rows = np.flatnonzero(~skipped)
        if not len(rows):
            problem = f"all of its {len(self.source)} images are skipped by {', '.join(self.skip)}"
            raise InputError(f"{self.source.name}: {problem}; skip fewer")
        ids = tuple(self.source.ids[row] for row in rows)
        source = self.source
        _set(self, name=source.name, classes=source.classes, ids=ids, labels=source.labels[rows], rows=rows)

    def _pixels(self, places: NDArray[np.intp]) -> NDArray[np.uint8]:
        return self.source.pixels(self.rows[places])

    def _content(self) -> Content:
        return (self.source.digest, self.rows)


@dataclass(frozen=True, eq=False)
class JoinedSource(Source):
    """Images of several sources, one source after the other; an id begins with the name of its source."""

    sources: tuple[Source, ...]  # with the same classes, and images of one size

    def __post_init__(self) -> None:
        first = self.sources[0]
        for place, source in enumerate(self.sources):
            difference = class_difference(first.classes, source.classes)
            if difference:
                problem = f"{first.name} and {source.name} have {difference}"
                raise InputError(f"{problem}; sources that are joined need the same classes in the same order")
            if source.name in {before.name for before in self.sources[:place]}:
                raise InputError(f"two sources are called {source.name}; give each a name of its own")
        ids = tuple(f"{source.name}/{name}" for source in self.sources for name in source.ids)
        labels = np.concatenate([source.labels for source in self.sources])
        name = " + ".join(source.name for source in self.sources)
        _set(self, name=name, classes=first.classes, ids=ids, labels=labels)

    def _pixels(self, places: NDArray[np.intp]) -> NDArray[np.uint8]:
        ends = np.cumsum([len(source) for source in self.sources])
        owner = np.searchsorted(ends, places, side="right")
        starts = ends - [len(source) for source in self.sources]
        parts = [source.pixels(places[owner == n] - starts[n]) for n, source in enumerate(self.sources)]
        pixels = np.empty((len(places), *parts[0].shape[1:]), np.uint8)
        for place, part in enumerate(parts):
            if part.shape[1:] != pixels.shape[1:]:
                raise InputError(f"{self.name}: images are {pixels.shape[1:]} and {part.shape[1:]}; give them one size")
            pixels[owner == place] = part
        return pixels

    def _content(self) -> Content:
        return [source.digest for source in self.sources]


def numbered_ids(prefix: str, count: int) -> tuple[str, ...]:
    """Returns ids made of a prefix and the place in a file."""
    return tuple(f"{prefix}/{place:05d}" for place in range(count))


def group_of_class(groups: Groups) -> dict[int | str, int]:
    """Returns the place of the group of every class, by number or by name, or raises OptionError if one has two."""
    places: dict[int | str, int] = {}
    for place, (name, members) in enumerate(groups.items()):
        for member in members:
            ends = RANGE.fullmatch(member) if isinstance(member, str) else None
            each = range(int(ends[1]), int(ends[2]) + 1) if ends else (member,)
            if not each:
                problem = f"{member!r} ends before it begins"
                raise OptionError(f"{problem}; a range goes from a smaller number to a larger one")
            for one in each:
                if places.setdefault(one, place) != place:
                    other = list(groups)[places[one]]
                    raise OptionError(f"{name} holds {one!r}, and so does {other}; a class has one group at most")
    return places


def _set(source: Source, **values: object) -> None:
    """Sets attributes of a frozen source while it is made."""
    for name, value in values.items():
        object.__setattr__(source, name, value)


def checked_images(images: NDArray[np.uint8], where: str) -> NDArray[np.uint8]:
    """Returns images as (N, H, W, C) that cannot be written to, or raises ImageError unless they are 8-bit."""
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


def checked_indices(indices: Any, count: int) -> NDArray[np.intp]:
    """Returns places as an array of integers, or raises InputError unless each is in 0..count-1."""
    array = np.asarray(indices)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise InputError(f"indices are {array.dtype} of shape {array.shape}; they must be a list of whole numbers")
    outside = array[(array < 0) | (array >= count)]
    if outside.size:
        raise InputError(f"index {outside[0]} is outside; there are {count} images, counted from 0")
    return array.astype(np.intp)


def checked_labels(labels: Any, count: int, where: str) -> NDArray[np.int64]:
    """Returns labels as int64 (count,), or raises InputError unless they are that many whole numbers from 0 on."""
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        problem = f"labels are {array.dtype} of shape {array.shape}"
        raise InputError(f"{where}: {problem}; they must be integers, one per image")
    if len(array) != count:
        raise InputError(f"{where}: there are {count} images and {len(array)} labels; each image needs one label")
    if array.size and array.min() < 0:
        raise InputError(f"{where}: label {array.min()} is unknown; labels count classes from 0")
    if array.size and array.max() >= MAX_CLASSES:
        raise InputError(f"{where}: label {array.max()} is too large; labels count classes, {MAX_CLASSES:,} at most")
    return array.astype(np.int64)


def class_difference(one: tuple[str, ...], other: tuple[str, ...]) -> str | None:
    """Returns how the classes of two sources differ, None if they do not; a bare number may stand for a name."""
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} classes"
    pairs = enumerate(zip(one, other, strict=True))
    # .npz files name their classes by number only
    return next((f"{a!r} and {b!r} as class {n}" for n, (a, b) in pairs if a != b and str(n) not in (a, b)), None)


def check_ids(ids: tuple[str, ...], count: int, where: str) -> None:
    """Raises InputError unless there is one id per image, all of them different texts."""
    if len(ids) != count:
        raise InputError(f"{where}: there are {count} images and {len(ids)} ids; each image needs one id")
    other = next((name for name in ids if not isinstance(name, str)), None)
    if other is not None:
        raise InputError(f"{where}: an id is {other!r}; ids must be text; use the names of the source images")
    if len(set(ids)) < count:
        twice = next(name for name, count in Counter(ids).items() if count > 1)
        raise InputError(f"{where}: id {twice!r} occurs twice; every image needs an id of its own")
