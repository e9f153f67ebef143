"""Attacks of a plan made piece by piece by several processes, which leave what they make in the cache."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from benfourier import progress
from benfourier.attacks.examples import make_examples
from benfourier.attacks.identity import digest_of_subject
from benfourier.data.labelled import Labelled
from benfourier.evaluation.executors import Broken, Executor
from benfourier.evaluation.plan import Plan
from benfourier.evaluation.preparing import Ground, survey
from benfourier.evaluation.threads import one_thread
from benfourier.store.cache import Cache
from benfourier.store.digest import digest_of

DEAR = ("cw-l2", "r-pgd")  # they come first, so that nobody waits for them at the end


@dataclass(frozen=True)
class Piece:
    """Some neighbours among the source images, and what is to be done to them.

    Args:
        second: images of the second source, instead of the first.
        attack: label.
        start: place of the first image.
    """

    second: bool
    attack: str
    start: int


@dataclass(frozen=True)
class Crafter:
    """Makes pieces in another process, which finds the network in the cache.

    Args:
        plan: what is asked for.
        cache: where attacked images are kept.
    """

    plan: Plan
    cache: Cache

    def __call__(self, piece: Piece) -> None:
        """Leaves one piece in the cache: its chunk is one of those that the whole set is made of."""
        attack = _plan(self.plan, piece.second).attack(piece.attack)
        images = _images(_ground(self), piece.second)
        part = slice(piece.start, min(piece.start + self.plan.chunk, attack.sources))
        make_examples(
            _ground(self).opened.subject,
            images.images[part],
            images.labels[part],
            ids=images.ids[part],
            attack={attack.label: (attack.name, attack.options)},
            seed=self.plan.seed,
            cache=self.cache.folder,
            chunk=self.plan.chunk,
            show_progress=False,
        )

    def __hash__(self) -> int:
        return hash(self.cache)


def precraft(plan: Plan, ground: Ground, executor: Executor, cache: Cache, show_progress: bool | None = None) -> None:
    """Makes all attacks of a plan, unless the cache says that it was done; what fails is left to whoever asks next.

    Args:
        plan: says which attacks.
        ground: the network and its images.
        executor: where they are made.
        cache: where they are kept.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    done = _mark(plan, ground)
    if cache.get(done) is not None:
        return
    pieces = sorted(_pieces(plan, ground), key=lambda piece: _rank(plan.attack(piece.attack).name))
    failed = False
    with progress.bar(len(pieces), "attacks, in pieces", show=show_progress) as advance:
        for piece, result in executor.run(pieces, Crafter(plan, cache)):
            failed |= isinstance(result, Broken)
            advance(1, piece.attack)
    if not failed:
        cache.put(done, {"pieces": np.array([len(pieces)])})


def _mark(plan: Plan, ground: Ground) -> str:
    """A digest of everything that the attacks of a plan depend on."""
    wanted = [(attack.name, attack.options, attack.sources, attack.transfer) for attack in plan.attacks]
    sources = [_images(ground, second) for second in (False, True) if not second or ground.other is not None]
    with one_thread():
        network = digest_of_subject(ground.opened.subject)
    ids = [name for images in sources for name in images.ids]
    arrays = [array.numpy() for images in sources for array in (images.images, images.labels)]
    return digest_of(("precrafted", network, repr((wanted, plan.seed, plan.chunk)), *ids, *arrays))


def _pieces(plan: Plan, ground: Ground) -> Iterator[Piece]:
    for second in (False, True) if ground.other is not None else (False,):
        for attack in _plan(plan, second).attacks:
            for start in range(0, min(attack.sources, len(_images(ground, second).ids)), plan.chunk):
                yield Piece(second, attack.label, start)


def _plan(plan: Plan, second: bool) -> Plan:
    return plan.elsewhere if second else plan


def _rank(name: str) -> int:
    return DEAR.index(name) if name in DEAR else len(DEAR)


def _images(ground: Ground, second: bool) -> Labelled:
    found = ground.other if second else ground.found
    assert found is not None
    return found.sources


@cache
def _ground(work: Crafter) -> Ground:
    return survey(work.plan, work.cache, show_progress=False)
