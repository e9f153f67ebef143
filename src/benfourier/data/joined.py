"""Several sources with the same classes as one."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benfourier.data.source import Source, checked_indices, classes_apart
from benfourier.errors import InputError
from benfourier.store.digest import digest_of


@dataclass(frozen=True, eq=False)
class JoinedSource:
    """Images of several sources, one source after the other; an id begins with the name of its source.

    Args:
        sources: with the same classes, and images of one size.
    """

    sources: tuple[Source, ...]

    def __post_init__(self) -> None:
        first = self.sources[0]
        for place, source in enumerate(self.sources):
            apart = classes_apart(first.classes, source.classes)
            if apart:
                raise InputError(
                    f"{first.name} and {source.name} have {apart}; sources that are joined need the same classes in "
                    "the same order"
                )
            if source.name in {before.name for before in self.sources[:place]}:
                raise InputError(f"two sources are called {source.name}; give each a name of its own")

    @property
    def name(self) -> str:
        """Their names."""
        return " + ".join(source.name for source in self.sources)

    @property
    def classes(self) -> tuple[str, ...]:
        """Those of the first."""
        return self.sources[0].classes

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Each behind the name of its source."""
        return tuple(f"{source.name}/{name}" for source in self.sources for name in source.ids)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """One per image."""
        return np.concatenate([source.labels for source in self.sources])

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all digests."""
        return digest_of([source.digest for source in self.sources])

    def __len__(self) -> int:
        return sum(map(len, self.sources))

    def pixels(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """Returns the images at some places, (n, H, W, C); raises ImageError if one of them cannot be read."""
        chosen = checked_indices(indices, len(self))
        ends = np.cumsum([len(source) for source in self.sources])
        home = np.searchsorted(ends, chosen, side="right")
        parts = [
            source.pixels(chosen[home == place] - (ends[place] - len(source)))
            for place, source in enumerate(self.sources)
        ]
        found = np.empty((len(chosen), *parts[0].shape[1:]), np.uint8)
        for place, part in enumerate(parts):
            if part.shape[1:] != found.shape[1:]:
                raise InputError(f"{self.name}: images are {found.shape[1:]} and {part.shape[1:]}; give them one size")
            found[home == place] = part
        return found
