"""Our attacks beside those of Foolbox 3: how much faster they are, why, and whether they are as strong."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import mean, median
from typing import Any

from benchmarks.duel import Run, Side
from benchmarks.parts import LAYOUT, SHARED_FORWARD, SHORTCUTS, TOLERANCE
from benchmarks.results import Case

IMAGES = 32  # at once, and in all


@dataclass(frozen=True)
class Duel:
    """How one attack is compared.

    Attributes:
        rounds: in which both take turns.
        forwards: passes that Foolbox makes for one step of one image: for the gradient and for the criterion, or for
            the gradients of nine candidates.
        parts: of our speed that are timed: those that Foolbox lacks.
        trial: options with which they are timed; the parts of a pass need no full run.
    """

    rounds: int
    forwards: int
    parts: tuple[str, ...]
    trial: Mapping[str, Any] = field(default_factory=dict)


DUELS = {
    "bim": Duel(3, 2, (TOLERANCE, SHARED_FORWARD, LAYOUT, SHORTCUTS)),
    "r-pgd": Duel(1, 2, (TOLERANCE, SHARED_FORWARD, LAYOUT, SHORTCUTS)),
    "cw-l2": Duel(1, 1, (LAYOUT, SHORTCUTS), {"iterations": 50}),
    "deepfool": Duel(3, 9, (SHARED_FORWARD, LAYOUT, SHORTCUTS)),
}


def speed(name: str, limit: float, threads: int) -> Case:
    """Returns seconds, how many times faster ours is, and the parts of that as factors; rest is what they leave."""
    ours, theirs = _fought(name, threads)
    figures = {
        "foolbox_seconds": median(run.seconds for run in theirs),
        "ours_seconds": median(run.seconds for run in ours),
        "images": float(IMAGES),
        "rounds": float(len(ours)),
    }
    figures["speed_up"] = figures["foolbox_seconds"] / figures["ours_seconds"]
    parts = _parts(name, threads)
    figures |= parts | {"rest": figures["speed_up"] / math.prod(parts.values())}
    return Case(f"attacks/{name}", figures, "speed_up", limit, "at least")


def distance(name: str, limit: float, threads: int) -> Case:
    """Returns successes, median L2 distances and our median over Foolbox's, infinite if ours has fewer successes."""
    (ours, *_), (theirs, *_) = _fought(name, threads)
    figures = {
        "foolbox_success": theirs.success,
        "ours_success": ours.success,
        "foolbox_l2": median(theirs.l2),
        "ours_l2": median(ours.l2),
    }
    figures["distance"] = median(ours.l2) / median(theirs.l2) if ours.success >= theirs.success else math.inf
    return Case(f"attacks/{name}-distance", figures, "distance", limit, "at most")


@cache
def _side(which: str, threads: int) -> Side:
    return Side(threads)


@cache
def _fought(name: str, threads: int) -> tuple[list[Run], list[Run]]:
    """Our runs and those of Foolbox, in turns."""
    home, away = _side("ours", threads), _side("foolbox", threads)
    turns = [(home.ours(name, IMAGES, {}), away.foolbox(name, IMAGES)) for _ in range(DUELS[name].rounds)]
    return [ours for ours, _ in turns], [theirs for _, theirs in turns]


def _parts(name: str, threads: int) -> dict[str, float]:
    """What each part of our speed is worth: our time without it over our time with it.

    Two are counted. Compaction: the steps of Foolbox, in which every image waits for the slowest, over those of ours
    with all bisections. Spared gradients: twice our forward passes over all our passes.
    """
    duel, (ours, *_), (theirs, *_) = DUELS[name], *_fought(name, threads)
    home = _side("ours", threads)
    before = home.ours(name, IMAGES, duel.trial)
    lesser = {part: home.ours(name, IMAGES, duel.trial, part) for part in duel.parts}
    seconds = mean((before.seconds, home.ours(name, IMAGES, duel.trial).seconds))
    parts = {part: run.seconds / seconds for part, run in lesser.items()}
    parts["compaction"] = theirs.forwards / duel.forwards / lesser.get(TOLERANCE, ours).forwards
    if name != "deepfool":
        parts["spared_gradients"] = 2 * ours.forwards / (ours.forwards + ours.gradients)
    return parts
