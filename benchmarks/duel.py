"""Our attacks and those of Foolbox 3, run on the same frozen network and images, with the same number of threads.

Each side has a process of its own, as its users would have: what one does to the process does not help the other.
"""

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

import benfourier as bf
from benchmarks.held import Held, held_out_mnist
from benchmarks.parts import without


@dataclass(frozen=True)
class Run:
    """One run of an attack.

    Attributes:
        seconds: it took.
        forwards: forward passes per image.
        gradients: how many of them were made for a gradient.
        l2: distance of each image found, infinite where there is none.
    """

    seconds: float
    forwards: float
    gradients: float
    l2: tuple[float, ...]

    @property
    def success(self) -> float:
        """Share of the images that are misclassified."""
        return sum(map(math.isfinite, self.l2)) / len(self.l2)


class Side:
    """A process in which attacks are run."""

    def __init__(self, threads: int) -> None:
        self._process = ProcessPoolExecutor(1, get_context("spawn"), torch.set_num_threads, (threads,))

    def ours(self, name: str, images: int, options: Mapping[str, Any], part: str | None = None) -> Run:
        """Returns a run of our attack, without a part of its speed if one is named."""
        return self._process.submit(_ours, name, images, options, part).result()

    def foolbox(self, name: str, images: int) -> Run:
        """Returns a run of Foolbox's."""
        return self._process.submit(_foolbox, name, images).result()


@cache
def _prey() -> Held:
    return held_out_mnist(3, 0.1)


def _ours(name: str, images: int, options: Mapping[str, Any], part: str | None) -> Run:
    with without(part) as more:
        given = {**options, **more, "batch": images, "show_progress": False}
        return _run(images, lambda prey: bf.attack(name, prey.subject, prey.images, prey.labels, **given).images)


def _foolbox(name: str, images: int) -> Run:
    from benchmarks.rivals import rival

    return _run(images, lambda prey: rival(name, prey.subject)(prey.images, prey.labels))


def _run(images: int, attack: Callable[[Held], Tensor]) -> Run:
    prey = _prey().first(images)
    seen = {False: 0, True: 0}  # images in forward passes without and with a gradient

    def count(module: object, inputs: object, logits: Tensor) -> None:
        seen[logits.requires_grad] += len(logits)

    handle = prey.subject.module.register_forward_hook(count)
    try:
        start = time.perf_counter()
        found = attack(prey)
        seconds = time.perf_counter() - start
    finally:
        handle.remove()
    won = prey.subject.logits(found).argmax(1) != prey.labels
    l2 = (found - prey.images).double().flatten(1).norm(dim=1).masked_fill(~won, torch.inf)
    return Run(seconds, sum(seen.values()) / images, seen[True] / images, tuple(l2.tolist()))
