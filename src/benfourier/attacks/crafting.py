"""The dear part of making examples, in chunks of fixed composition that are kept in a cache."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benfourier import progress
from benfourier.attacks.attack import attack
from benfourier.attacks.foolbox_door import PREFIX
from benfourier.attacks.noise import Noise
from benfourier.attacks.probe import fitting_batch, probe
from benfourier.attacks.roster import Entry
from benfourier.attacks.stock import Crafted, Stock
from benfourier.errors import ResponseError
from benfourier.store.artifact import Arrays
from benfourier.store.cache import Cache, fetch
from benfourier.store.digest import digest_of
from benfourier.subjects.hearing import undisturbed
from benfourier.subjects.subject import Subject

VERSION = 2  # of what is computed here; raise it with every change of numbers
NOTHING_YET = "no success yet"


@dataclass(frozen=True)
class Workshop:
    """Where chunks are made, or found in the cache.

    Args:
        subject: the network.
        network: its digest.
        cache: None to make everything anew.
        seed: of all draws.
        chunk: images per chunk.
        batch: images at once; None for as many as fit the memory.
        eight_bit: whether images have 8-bit pixels.
        show: whether progress is drawn.
    """

    subject: Subject
    network: str
    cache: Cache | None
    seed: int
    chunk: int
    batch: int | None
    eight_bit: bool
    show: bool | None

    def told(self, stock: Stock, what: str) -> tuple[Tensor, int]:
        """Returns the classes that the subject tells, (N,), and how many classes it knows."""
        found: list[Arrays] = []
        with progress.bar(len(stock), what, show=self.show) as advance:
            for piece in self._pieces(stock):
                key = self._key("told", batch=self.batch, images=piece.digests)
                arrays, _ = fetch(self.cache, key, lambda: self._classes(piece))  # noqa: B023
                found.append(arrays)
                advance(len(piece))
        return _joined(found, "classes"), int(found[0]["width"][0])

    def crafted(self, entry: Entry, stock: Stock) -> Crafted:
        """Returns what an attack makes of the images."""
        found: list[Arrays] = []
        start, cached = time.perf_counter(), 0
        with progress.bar(len(stock), entry.label, show=self.show) as advance:
            for piece in self._pieces(stock):
                arrays, known = fetch(self.cache, self._attack_key(entry, piece), lambda: self._attack(entry, piece))  # noqa: B023
                found.append(arrays)
                cached += known * len(piece)
                advance(len(piece), note=_note(found))
        columns = {name: _joined(found, name) for name in ("images", "success", "l2", "linf", "calls")}
        return Crafted(entry, **columns, cached=cached, seconds=time.perf_counter() - start)

    def level(self, stock: Stock, noise: Noise, length: float, centre: str) -> float:
        """Returns the level of noise of a given median or mean length."""
        key = self._key(
            "level",
            seed=self.seed,
            eight_bit=self.eight_bit,
            length=length,
            centre=centre,
            images=stock.digests,
            ids=stock.ids,
        )
        arrays, _ = fetch(self.cache, key, lambda: {"level": np.array([noise.level_for(length, centre)])})
        return float(arrays["level"][0])

    def _pieces(self, stock: Stock) -> Iterator[Stock]:
        for first in range(0, len(stock), self.chunk):
            yield stock.take(torch.arange(first, min(first + self.chunk, len(stock))))

    def _key(self, what: str, **depends: Any) -> str:
        return digest_of((json.dumps([VERSION, what, self.network, depends], sort_keys=True, allow_nan=False),))

    def _attack_key(self, entry: Entry, piece: Stock) -> str:
        return self._key(
            "attack",
            name=entry.name,
            library=_library(entry.name),
            options=dict(entry.options),
            seed=self.seed,
            batch=self.batch,
            eight_bit=self.eight_bit,
            images=piece.digests,
            labels=piece.labels.tolist(),
            ids=piece.ids,
        )

    def _classes(self, piece: Stock) -> Arrays:
        with torch.inference_mode(False), undisturbed(self.subject.module):
            size = self.batch or fitting_batch(probe(self.subject, piece.images[:1]))
        with torch.no_grad():
            parts = [piece.images[first : first + size] for first in range(0, len(piece), size)]
            logits = torch.cat([self.subject.logits(part).cpu() for part in parts])
        for row in (~logits.isfinite().all(1)).nonzero().flatten().tolist():
            raise ResponseError(f"the logits of image {piece.ids[row]!r} hold NaN or infinity; leave the image out")
        return {"classes": logits.argmax(1).numpy(), "width": np.array([logits.shape[1]])}

    def _attack(self, entry: Entry, piece: Stock) -> Arrays:
        result = attack(
            entry.name,
            self.subject,
            piece.images,
            piece.labels,
            seed=self.seed,
            ids=piece.ids,
            batch=self.batch,
            show_progress=False,
            eight_bit=self.eight_bit,
            **entry.options,
        )
        won = result.success & ~result.already  # in another batch rounding can turn a tie
        found = {
            "images": torch.where(won.view(-1, 1, 1, 1), result.images, piece.images),
            "success": won,
            "l2": result.l2.masked_fill(~won, torch.inf),
            "linf": result.linf.masked_fill(~won, torch.inf),
            "calls": result.calls,
        }
        return {name: column.numpy() for name, column in found.items()}


def _joined(found: list[Arrays], name: str) -> Tensor:
    return torch.cat([torch.from_numpy(arrays[name]) for arrays in found])


def _note(found: list[Arrays]) -> str:
    """The success rate and the median distance so far."""
    won, l2 = _joined(found, "success"), _joined(found, "l2")
    if not won.any():
        return NOTHING_YET
    return f"success {float(won.double().mean()):.3f}, median L2 {float(l2[won].quantile(0.5)):.3g}"


def _library(name: str) -> str | None:
    """The version of the library that makes the attack, if it is none of ours."""
    if name.startswith(PREFIX):
        return version("foolbox")
    return version("pyautoattack") if name == "autoattack" else None
