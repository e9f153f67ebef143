"""Images that others are compared with, and which of them is a query's own source."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from benfourier.data.labelled import Labelled
from benfourier.detectors.method import Lessons


@dataclass(frozen=True, eq=False)
class Pool:
    """Clean images that many fits take their references from.

    Args:
        images: (N, C, H, W).
        ids: of the images, each once.
        shared: what fits have made of all of them, for as long as one of these fits is in use.
    """

    images: Tensor
    ids: tuple[str, ...]
    shared: WeakValueDictionary[tuple[str, ...], Any] = field(default_factory=WeakValueDictionary, init=False)


class Register:
    """The places of reference images by id."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._count = len(ids)
        self._places: dict[str, list[int]] = {}
        for place, name in enumerate(ids):
            self._places.setdefault(name, []).append(place)

    def places(self, name: str) -> list[int]:
        """Returns where the images of an id stand, usually nowhere."""
        return self._places.get(name, [])

    def own(self, queries: Sequence[str]) -> Tensor:
        """Returns bool (queries, references), true where a reference has the query's id."""
        found = torch.zeros(len(queries), self._count, dtype=torch.bool)
        for row, name in enumerate(queries):
            found[row, self.places(name)] = True
        return found


def labelled(lessons: Lessons) -> Labelled:
    """Returns the clean images to learn classes from: those beyond the examples if there are any, or the examples'."""
    if lessons.clean is not None:
        return lessons.clean
    examples = lessons.examples
    return Labelled(examples.clean, examples.labels, examples.ids)
