"""Numbers of images that many fits ask for: computed once, in chunks of fixed composition, and kept in the cache.

The last bits of a number depend on the batch it was computed in. So an image always gets its numbers together with the
other images of its chunk, whoever asks first, and a run that was interrupted ends with the same bits.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from random import Random
from typing import Any

import torch
from torch import Tensor

from benfourier.data.draws import names_by_content
from benfourier.detectors.detector import numbers_of
from benfourier.detectors.listening import finite
from benfourier.detectors.method import Divisible, Measure, Staged
from benfourier.detectors.references import Pool
from benfourier.store.cache import Cache
from benfourier.store.digest import Part, digest_of
from benfourier.subjects.subject import Subject

CHUNK = 64
WIDE = 1024  # numbers per image beyond which they are kept in memory only, if they take more than the image
VERSION = 2  # of what is computed here; raise it with every change of numbers


class Memo:
    """The numbers of some images, by measure; only for methods that are `lasting`, and measures that are `Staged`.

    Args:
        network: digest of all that decides the subject's numbers.
        pool: tensors (N, C, H, W) of all images that will be asked for; the same images twice count once.
        cache: where numbers are kept for the next run; None for nowhere.
        references: clean images that all fits take their references from, if they are to share them.
    """

    def __init__(
        self, network: str, pool: Iterable[Tensor], cache: Cache | None = None, references: Pool | None = None
    ) -> None:
        self._network, self._cache, self.references = network, cache, references
        self._chunks: list[tuple[list[str], Tensor]] = []
        self._places: dict[str, tuple[int, int]] = {}
        self._known: dict[tuple[str, int], Tensor] = {}
        for images in pool:
            self._add(images)

    def of(self, subject: Subject, measure: Measure, images: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the measure's numbers (N, D), made of those of its stages if it has some."""
        if not isinstance(measure, Staged):
            return self.numbers(subject, measure, images)
        found = torch.cat([self.numbers(subject, stage, images) for stage in measure.stages()], 1)
        return finite(measure.finished(found, ids), ids)

    def numbers(self, subject: Subject, measure: Measure, images: Tensor) -> Tensor:
        """Returns the measure's numbers (N, D); images that are not in the pool are refused by KeyError."""
        places = [self._places[name] for name in names_by_content(images)]
        if not places:
            return torch.empty(0, 0, dtype=torch.float64)
        parts = measure.divided() if isinstance(measure, Divisible) else (measure,)
        return torch.cat([self._part(subject, part, places) for part in parts], 1)

    def _part(self, subject: Subject, measure: Measure, places: list[tuple[int, int]]) -> Tensor:
        content = _content(measure)
        order = sorted({chunk for chunk, _ in places})
        Random(os.getpid()).shuffle(order)  # noqa: S311  processes that share a cache begin at different ends
        chunks = {chunk: self._chunk(subject, measure, content, chunk).double() for chunk in order}
        return torch.stack([chunks[chunk][row] for chunk, row in places])

    def _chunk(self, subject: Subject, measure: Measure, content: str, chunk: int) -> Tensor:
        if (content, chunk) not in self._known:
            names, images = self._chunks[chunk]
            key = digest_of((f"numbers {VERSION}", self._network, content, *names))
            stored = None if self._cache is None else self._cache.get(key)
            found = _made(subject, measure, images, names) if stored is None else torch.from_numpy(stored["numbers"])
            small = found.shape[1] <= WIDE or found.nbytes <= images.nbytes
            if self._cache is not None and stored is None and small:
                self._cache.put(key, {"numbers": found.numpy()})
            self._known[content, chunk] = found
        return self._known[content, chunk]

    def _add(self, images: Tensor) -> None:
        names = names_by_content(images)
        fresh = [row for name, row in {name: row for row, name in enumerate(names)}.items() if name not in self._places]
        for start in range(0, len(fresh), CHUNK):
            rows = sorted(fresh[start : start + CHUNK])
            for place, row in enumerate(rows):
                self._places[names[row]] = (len(self._chunks), place)
            self._chunks.append(([names[row] for row in rows], images[rows]))


def _made(subject: Subject, measure: Measure, images: Tensor, names: list[str]) -> Tensor:
    """The numbers of one chunk, in float32 if that loses nothing."""
    (found,) = numbers_of(subject, [measure], images, names, show_progress=False)
    narrow = found.float()
    return narrow if torch.equal(narrow.double(), found) else found


def _content(measure: Measure) -> str:
    """A digest of a measure's kind and fields."""
    parts: list[Part] = [f"{type(measure).__module__}.{type(measure).__qualname__}"]
    for part in fields(measure):  # type: ignore[arg-type]
        if part.init:
            value: Any = getattr(measure, part.name)
            parts.append(part.name)
            parts.append(value.detach().cpu().contiguous().numpy() if isinstance(value, Tensor) else repr(value))
    return digest_of(parts)
