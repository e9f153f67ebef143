"""Coarse labels: classes of a source gathered in groups, and images outside every group left out."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.data.source import Source, checked_indices
from benfourier.errors import InputError, OptionError
from benfourier.store.digest import digest_of

RANGE = re.compile(r"(\d+)-(\d+)")
Groups = Mapping[str, Sequence[int | str]]


@dataclass(frozen=True, eq=False)
class GroupedSource:
    """Some images of a source, with other labels.

    Args:
        source: where the images come from.
        groups: by name, classes of the source: their number, "7-24" for numbers from 7 to 24, or their name.
        rows: places in the source, in order; found from the groups.
        labels: the group of each, as its place among the groups.
    """

    source: Source
    groups: Groups
    rows: NDArray[np.intp] = field(init=False)
    labels: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        homes = homes_of(self.groups)
        for label, name in enumerate(self.source.classes):
            both = {homes[key] for key in (label, name) if key in homes}
            if len(both) > 1:
                told = " and ".join(list(self.groups)[place] for place in sorted(both))
                raise OptionError(f"{told} both hold class {label}, {name!r}; a class has one group at most")
        found = [homes.get(label, homes.get(self.source.classes[label], -1)) for label in self.source.labels.tolist()]
        rows = np.flatnonzero(np.array(found) >= 0)
        if not len(rows):
            raise InputError(f"{self.source.name}: none of its {len(self.source)} images is of a group; look at both")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "labels", np.array(found, np.int64)[rows])

    def strangers(self) -> list[str]:
        """Returns groups of which the source has no image, and names of classes that it does not know."""
        empty = [name for place, name in enumerate(self.groups) if place not in self.labels]
        names = [one for one in homes_of(self.groups) if isinstance(one, str)]
        return empty + [name for name in names if name not in self.source.classes]

    @property
    def name(self) -> str:
        """That of the source."""
        return self.source.name

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(self.groups)

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Those of the source."""
        return tuple(self.source.ids[row] for row in self.rows)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the source's digest and the labels."""
        return digest_of((self.source.digest, *self.classes, self.rows, self.labels))

    def __len__(self) -> int:
        return len(self.rows)

    def pixels(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """Returns the images at some places, (n, H, W, C); raises ImageError if one of them cannot be read."""
        return self.source.pixels(self.rows[checked_indices(indices, len(self))])


def homes_of(groups: Groups) -> dict[int | str, int]:
    """Returns the place of the group of every class, by number or by name, or raises OptionError if one has two."""
    homes: dict[int | str, int] = {}
    for place, (name, members) in enumerate(groups.items()):
        for member in members:
            for one in _classes(member):
                if homes.setdefault(one, place) != place:
                    told = list(groups)[homes[one]]
                    raise OptionError(f"{name} holds {one!r}, and so does {told}; a class has one group at most")
    return homes


def _classes(member: int | str) -> Sequence[int | str]:
    """What a member stands for: one class, or all of a range."""
    found = RANGE.fullmatch(member) if isinstance(member, str) else None
    if found is None:
        return (member,)
    first, last = map(int, found.groups())
    if first > last:
        raise OptionError(f"{member!r} ends before it begins; a range goes from a smaller number to a larger one")
    return range(first, last + 1)
