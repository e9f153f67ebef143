"""Mean and deviation of every MBF number over the images of one kind: the paper's figures."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from benfourier import progress
from benfourier.evaluation.parts import Part, digest_of_network, kinds_of
from benfourier.store.digest import digest_of
from benfourier.store.records import Profile
from benfourier.subjects.features import features
from benfourier.subjects.selection import select
from benfourier.subjects.subject import Subject


def profile_study(
    subject: Subject,
    parts: Sequence[Part],
    *,
    orders: int = 16,
    pass_through: bool = False,
    known: Collection[str] = (),
    show_progress: bool | None = None,
) -> Iterator[Profile]:
    """Yields one record for the clean images, the noisy ones, and the successes of each attack, of every part.

    Args:
        subject: the classifier.
        parts: examples.
        orders: |â_n| is taken for n = 1..orders.
        pass_through: also layers that only pass numbers on in eval mode.
        known: keys of records that are there already; they are not made again.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    network = digest_of_network(subject)
    options = repr((orders, pass_through))
    kinds = {digest_of((network, "profile", options, kind.identity)): kind for p in parts for kind in kinds_of(p)}
    wanted = {key: kind for key, kind in kinds.items() if key not in known}
    with progress.bar(len(wanted), "profiles", show=show_progress) as advance:
        for key, kind in wanted.items():
            advance(0, f"{kind.part.source}, {kind.part.split}: {kind.name}")
            taken = features(subject, kind.images, orders, pass_through=pass_through, show_progress=False)
            plan = subject.plan(tuple(kind.images.shape[1:]))
            yield Profile(
                key=key,
                source=kind.part.source,
                split=kind.part.split,
                kind=kind.name,
                layers=tuple(layer.name for layer in select(plan.layers, None, pass_through=pass_through)),
                orders=orders,
                images=len(taken),
                mean=taken.mean(axis=0, dtype=np.float64).astype(np.float32),
                deviation=taken.std(axis=0, dtype=np.float64).astype(np.float32),
            )
            advance(1)
