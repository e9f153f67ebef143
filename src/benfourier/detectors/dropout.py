"""How unsure a network is under dropout: forward passes that differ only in what its Dropout modules drop.

U(x) = mean over classes of Var_t[p_t(x)], t = 1..T (Gal 2016, arXiv:1506.02142). Hooks drop, so every module stays in
eval mode, BatchNorm among them. What the masks are belongs to the image, not to its place in a batch.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benfourier.data.draws import names_by_content, seed_of
from benfourier.errors import SubjectError
from benfourier.subjects.features import MEMORY
from benfourier.subjects.hearing import at_rest, logits_of, soft_max
from benfourier.subjects.leaves import leaves
from benfourier.subjects.plan import Plan
from benfourier.subjects.subject import Subject

WHOLE_CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
KINDS = (nn.Dropout, *WHOLE_CHANNELS)
CACHED = 2**25  # bytes of copies beyond which they would leave the cache
LEVELS = 2**16  # a mask is drawn to this many levels of probability: four draws of one 64-bit number


def dropouts(module: nn.Module, plan: Plan) -> dict[str, nn.Module]:
    """Returns the Dropout modules that fire and have something to drop, by name, in firing order."""
    names = [layer.name.split("#")[0] for layer in plan.layers]
    known = {name: leaf for name, leaf in leaves(module) if isinstance(leaf, KINDS) and leaf.p > 0}
    return {name: known[name] for name in names if name in known}


@dataclass(frozen=True)
class Doubt:
    """T passes of every image.

    Args:
        passes: T.
        seed: of all masks.
        late: the passes part at the first dropout, so that what comes before it is computed once.
    """

    passes: int
    seed: int
    late: bool

    def of(self, subject: Subject, images: Tensor) -> Tensor:
        """Returns U of each image, (N,), float64 on the CPU."""
        return torch.cat([p.var(1, correction=0).mean(1) for p in self.posteriors(subject, images)])

    def work(self, subject: Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        """Returns the same, (N, 1): the masks belong to an image's pixels, not to its id."""
        return self.of(subject, images).unsqueeze(1)

    def posteriors(self, subject: Subject, images: Tensor) -> Iterator[Tensor]:
        """Yields the posteriors (images, passes, classes) of a few images at a time, as memory allows."""
        plan = subject.plan(tuple(images.shape[1:]))
        rows = self._rows(subject, plan)
        together, at_once = max(1, rows // self.passes), min(self.passes, rows)
        for start in range(0, len(images), together):
            part = images[start : start + together]
            entering = subject.normalise(part.to(subject.device, subject.dtype))
            masks = _Masks(names_by_content(part), self.seed)
            found = []
            for first in range(0, self.passes, at_once):
                masks.passes = min(at_once, self.passes - first)
                found.append(self._once(subject, plan, entering, masks))
            yield torch.cat(found, dim=1)

    def _rows(self, subject: Subject, plan: Plan) -> int:
        """How many rows may go through the dropped part at once, three of its largest responses in memory.

        Copies that go on alone are quickest while they stay in cache; but the passes of one image go together.
        """
        first = next(iter(dropouts(subject.module, plan)))
        place = next(i for i, layer in enumerate(plan.layers) if layer.name == first) if self.late else 0
        row = 3 * max(layer.entries for layer in plan.layers[place:]) * subject.dtype.itemsize
        return max(1, CACHED // row, min(self.passes, MEMORY // row)) if self.late else max(1, MEMORY // row)

    def _once(self, subject: Subject, plan: Plan, entering: Tensor, masks: "_Masks") -> Tensor:
        """Posteriors (images, passes, classes) of one forward pass over all copies."""
        images = len(entering)
        copies = entering.clone() if self.late else entering.repeat_interleave(masks.passes, 0)
        with at_rest(subject.module), masks.on(dropouts(subject.module, plan)), torch.no_grad():
            logits = logits_of(
                subject.module(copies.contiguous(memory_format=plan.memory_format)), images * masks.passes
            )
        return soft_max(logits).cpu().view(images, masks.passes, -1)


class _Masks:
    """Drops entries of a few images, each by draws of its own, apart for every firing of a module."""

    def __init__(self, names: Sequence[str], seed: int) -> None:
        self.passes = 1
        self._names, self._seed = names, seed
        self._draws: dict[str, list[np.random.SFC64]] = {}
        self._thread = threading.get_ident()

    @contextmanager
    def on(self, modules: dict[str, nn.Module]) -> Iterator[None]:
        """Hooks the modules while the block runs."""
        fired: Counter[str] = Counter()
        handles = []
        try:
            for name, module in modules.items():
                handles.append(module.register_forward_hook(self._hook(name, fired)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, name: str, fired: Counter[str]) -> Callable[[nn.Module, Any, Tensor], Tensor | None]:
        def hook(module: nn.Module, inputs: object, response: Tensor) -> Tensor | None:
            if threading.get_ident() != self._thread:
                return None
            fired[name] += 1
            return self._dropped(f"{name}#{fired[name]}", module, response)

        return hook

    def _dropped(self, firing: str, module: Any, response: Tensor) -> Tensor:
        """The response to all copies (images · passes, ...), even if it came for the images alone."""
        images, shape = len(self._names), response.shape[1:]
        drawn = (shape[0], *[1] * (len(shape) - 1)) if isinstance(module, WHOLE_CHANNELS) else shape
        if firing not in self._draws:
            self._draws[firing] = [np.random.SFC64(seed_of(self._seed, f"{name}/{firing}")) for name in self._names]
        limit = round(LEVELS * module.p)
        kept = np.stack([self._levels(draw, math.prod(drawn)) >= limit for draw in self._draws[firing]])
        masks = torch.from_numpy(kept).to(response.device).view(images, self.passes, *drawn)
        each = 1 if len(response) == images else self.passes
        raised = response.contiguous().view(images, each, *shape) * (LEVELS / max(1, LEVELS - limit))
        copies: Tensor = masks.to(response.dtype) * raised
        return copies.flatten(0, 1)

    def _levels(self, draw: np.random.SFC64, entries: int) -> NDArray[np.uint16]:
        """Numbers below LEVELS, (passes, entries); the next passes go on where these end."""
        words = -(-entries // 4)  # four numbers in each
        found = np.asarray(draw.random_raw(self.passes * words), np.uint64)
        return found.view(np.uint16).reshape(self.passes, 4 * words)[:, :entries]


def parts_late(subject: Subject, images: Tensor, seed: int) -> bool:
    """Returns whether passes may part at the first dropout: tried, and compared with passes that part at the image."""
    whole = torch.cat(list(Doubt(2, seed, late=False).posteriors(subject, images)))
    try:
        found = torch.cat(list(Doubt(2, seed, late=True).posteriors(subject, images)))
    except (RuntimeError, ValueError, TypeError, IndexError, SubjectError):  # images and copies met in one operation
        return False
    return torch.allclose(found, whole, rtol=1e-3, atol=1e-6)
