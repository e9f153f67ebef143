"""Attacked images on disk, in chunks of fixed composition, so that a run that was killed goes on where it was.

The last bits of an image depend on the batch that it was attacked in. So the images are cut into chunks in their order,
and every chunk is attacked, stored and read as a whole.

The key of a chunk is the SHA-256 of a JSON list of all that decides its images; later versions keep it as it is:

- FORMAT, the revision of this list and of the stored arrays,
- `classifier_digest`: weights, `repr`, layer names, logits of noise images, torch, device, dtype, threads,
- the attack: `name`, `as_dict()`, its `revision`, and the version of the library that does the work, if any,
- `seed`, `batch` (null for the default) and `eight_bit`,
- of the chunk: content ids (pixels as float32), labels, and ids, to which random draws belong.

The version of benfourier is not in it: an attack that gives other images raises its `revision`.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from benfourier import progress
from benfourier.attacks.apply import attack as run_attack
from benfourier.attacks.attack import Attack, AttackResult
from benfourier.data.images import LabelledImages
from benfourier.models.classifier import Classifier
from benfourier.store.artifact import Arrays, digest_of
from benfourier.store.cache import Cache, fetch

FORMAT = 3


@dataclass(frozen=True)
class AttackCache:
    """Attacks images chunk by chunk, or reads the chunks that are stored."""

    classifier: Classifier
    digest: str  # its `classifier_digest`
    cache: Cache | None  # where chunks are stored; None to attack everything anew
    seed: int
    chunk: int  # images per chunk
    batch: int | None  # images at once; None for as many as fit the memory
    eight_bit: bool
    show_progress: bool | None

    def attack(self, label: str, attack: Attack, images: LabelledImages) -> AttackResult:
        """Returns the attacked images; those that are misclassified without an attack count as failed."""
        parts: list[Arrays] = []
        start, cached = time.perf_counter(), 0
        with progress.bar(len(images), label, show=self.show_progress) as advance:
            for first in range(0, len(images), self.chunk):
                chunk = images.take(range(first, min(first + self.chunk, len(images))))
                part, known = fetch(self.cache, self.key(attack, chunk), partial(self._attack_chunk, attack, chunk))
                parts.append(part)
                cached += known * len(chunk)
                advance(len(chunk), note=_note(_join(parts, "success"), _join(parts, "l2")))
        columns = {name: _join(parts, name) for name in parts[0]}
        columns["already"] = torch.zeros(len(images), dtype=torch.bool)
        options, seconds = MappingProxyType(attack.as_dict()), time.perf_counter() - start
        return AttackResult(attack.name, options, self.seed, images.ids, **columns, seconds=seconds, cached=cached)

    def key(self, attack: Attack, chunk: LabelledImages) -> str:
        """Returns the key of a chunk, as the docstring of this module lists it."""
        library = version(attack.library) if attack.library else None
        depends = {
            "format": FORMAT,
            "classifier": self.digest,
            "attack": [attack.name, attack.as_dict(), attack.revision, library],
            "seed": self.seed,
            "batch": self.batch,
            "eight_bit": self.eight_bit,
            "content_ids": chunk.content_ids,
            "labels": chunk.labels.tolist(),
            "ids": chunk.ids,
        }
        return digest_of((json.dumps(depends, sort_keys=True, allow_nan=False),))

    def _attack_chunk(self, attack: Attack, chunk: LabelledImages) -> Arrays:
        options: dict[str, Any] = {"seed": self.seed, "batch": self.batch, "eight_bit": self.eight_bit}
        result = run_attack(attack, self.classifier, chunk, show_progress=False, **options)
        success = result.success & ~result.already  # rounding in another batch can misclassify a clean image
        columns = {
            "images": torch.where(success.view(-1, 1, 1, 1), result.images, chunk.images),
            "success": success,
            "l2": result.l2.masked_fill(~success, torch.inf),
            "linf": result.linf.masked_fill(~success, torch.inf),
            "calls": result.calls,
        }
        return {name: column.numpy() for name, column in columns.items()}


def _join(parts: Sequence[Arrays], name: str) -> Tensor:
    return torch.cat([torch.from_numpy(part[name]) for part in parts])


def _note(success: Tensor, l2: Tensor) -> str:
    if not success.any():
        return "no success yet"
    return f"success {float(success.double().mean()):.3f}, median L2 {float(l2[success].quantile(0.5)):.3g}"
