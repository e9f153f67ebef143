"""Numbers of images that many fits ask for: computed once, in chunks of fixed composition, and kept in the cache.

The last bits of a number depend on the batch it was computed in. So an image always gets its numbers together with the
other images of its chunk, whoever asks first, and a run that was interrupted ends with the same bits.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from benfourier.data.draws import names_by_content
from benfourier.detectors.detector import numbers_of
from benfourier.detectors.method import Divisible, Measure
from benfourier.store.cache import Cache, fetch
from benfourier.store.digest import Part, digest_of
from benfourier.subjects.subject import Subject

CHUNK = 64
VERSION = 1  # of what is computed here; raise it with every change of numbers


class Memo:
    """The numbers of some images, by measure; only for methods that are `lasting`.

    Args:
        network: digest of all that decides the subject's numbers.
        pool: tensors (N, C, H, W) of all images that will be asked for; the same images twice count once.
        cache: where numbers are kept for the next run; None for nowhere.
    """

    def __init__(self, network: str, pool: Iterable[Tensor], cache: Cache | None = None) -> None:
        self._network, self._cache = network, cache
        self._chunks: list[tuple[list[str], Tensor]] = []
        self._places: dict[str, tuple[int, int]] = {}
        self._known: dict[tuple[str, int], Tensor] = {}
        for images in pool:
            self._add(images)

    def numbers(self, subject: Subject, measure: Measure, images: Tensor) -> Tensor:
        """Returns the measure's numbers (N, D); images that are not in the pool are refused by KeyError."""
        places = [self._places[name] for name in names_by_content(images)]
        if not places:
            return torch.empty(0, 0, dtype=torch.float64)
        parts = measure.divided() if isinstance(measure, Divisible) else (measure,)
        return torch.cat([self._part(subject, part, places) for part in parts], 1)

    def _part(self, subject: Subject, measure: Measure, places: list[tuple[int, int]]) -> Tensor:
        content = _content(measure)
        chunks = {chunk: self._chunk(subject, measure, content, chunk) for chunk in {chunk for chunk, _ in places}}
        return torch.stack([chunks[chunk][row] for chunk, row in places])

    def _chunk(self, subject: Subject, measure: Measure, content: str, chunk: int) -> Tensor:
        if (content, chunk) not in self._known:
            names, images = self._chunks[chunk]

            def make() -> dict[str, Any]:
                (found,) = numbers_of(subject, [measure], images, names, show_progress=False)
                return {"numbers": found.numpy()}

            key = digest_of((f"numbers {VERSION}", self._network, content, *names))
            self._known[content, chunk] = torch.from_numpy(fetch(self._cache, key, make)[0]["numbers"])
        return self._known[content, chunk]

    def _add(self, images: Tensor) -> None:
        names = names_by_content(images)
        fresh = [row for name, row in {name: row for row, name in enumerate(names)}.items() if name not in self._places]
        for start in range(0, len(fresh), CHUNK):
            rows = sorted(fresh[start : start + CHUNK])
            for place, row in enumerate(rows):
                self._places[names[row]] = (len(self._chunks), place)
            self._chunks.append(([names[row] for row in rows], images[rows]))


def _content(measure: Measure) -> str:
    """A digest of a measure's kind and fields."""
    parts: list[Part] = [type(measure).__qualname__]
    for part in fields(measure):  # type: ignore[arg-type]
        if part.init:
            value: Any = getattr(measure, part.name)
            parts.append(part.name)
            parts.append(value.detach().cpu().contiguous().numpy() if isinstance(value, Tensor) else repr(value))
    return digest_of(parts)
