"""A walk through a source's images: which are for detection, which set thresholds, which the network gets wrong."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from benfourier import progress
from benfourier.attacks.identity import digest_of_subject
from benfourier.data.draws import names_by_content
from benfourier.data.labelled import Labelled
from benfourier.data.reading import Refusal, batches
from benfourier.data.source import Source
from benfourier.data.splits import Indices, spread
from benfourier.errors import InputError
from benfourier.evaluation.threads import one_thread
from benfourier.store.cache import Cache, fetch
from benfourier.store.digest import digest_of
from benfourier.subjects.images import images
from benfourier.subjects.subject import Subject

AT_ONCE = 64
FOLDS = 5
LEAST = 10  # source images that detectors can be fitted to and tested on
MORE = 10_000  # images that are looked at beyond those needed, for those that the network gets wrong
BEYOND = 5000  # clean images for detectors that learn from more than examples


@dataclass(frozen=True)
class Wanted:
    """How many images a walk is to find, at most: for detection, to set thresholds, and beyond both."""

    sources: int
    calibration: int
    beyond: int = 0


@dataclass(frozen=True, eq=False)
class Found:
    """What a walk found; no image is in two of these, not even under another id.

    Args:
        sources: images that are classified correctly, for detection, in the order of the walk.
        calibration: clean images that come next, classified correctly or not.
        wrong: other images that are misclassified.
        beyond: images that come after those for calibration.
        looked: how many images were classified.
        right: how many of them correctly.
        refused: how many images could not be read.
    """

    sources: Labelled
    calibration: Tensor
    wrong: Tensor
    beyond: Labelled | None
    looked: int
    right: int
    refused: int


@dataclass
class _Basket:
    images: list[Tensor] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def put(self, image: Tensor, label: int, name: str) -> None:
        self.images.append(image)
        self.labels.append(label)
        self.ids.append(name)

    def stacked(self, like: Tensor) -> Tensor:
        return torch.stack(self.images) if self.images else like[:0]


def walk(
    subject: Subject,
    source: Source,
    rows: Indices,
    wanted: Wanted,
    *,
    seed: int,
    known: frozenset[str] = frozenset(),
    answers: "Answers | None" = None,
    show_progress: bool | None = None,
) -> Found:
    """Returns the images of a source by their use, in one seeded order with all classes in their shares.

    Args:
        subject: the network.
        source: of images.
        rows: of the source that may be used.
        wanted: how many images of each use.
        seed: of the order.
        known: names by content of images that must not come again; copies of an image are passed over too.
        answers: what the network has said before; None to ask it again.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    baskets = {use: _Basket() for use in ("sources", "calibration", "wrong", "beyond")}
    order = rows[spread([source.ids[row] for row in rows], source.labels[rows], seed=seed)]
    seen, looked, good, extra = set(known), 0, 0, 0
    some = torch.empty(0)
    refusals: list[Refusal] = []
    with progress.bar(len(order), f"looking at {source.name}", show=show_progress) as advance:
        for part, labels, ids, right in _answered(subject, source, order, refusals, answers):
            some = part
            for image, label, name, mark, hit in zip(part, labels, ids, names_by_content(part), right, strict=True):
                if mark in seen:
                    continue
                seen.add(mark)
                looked, good = looked + 1, good + hit
                use = _use(wanted, baskets, hit=hit)
                extra += use in ("", "wrong") and len(baskets["calibration"].ids) >= wanted.calibration
                if use:
                    baskets[use].put(image, label, name)
            advance(len(part))
            if extra >= MORE:
                break
    count = len(baskets["sources"].ids)
    if count < min(LEAST, wanted.sources):
        raise InputError(
            f"the network classifies {count} of {looked} images of {source.name} correctly; detection needs at least "
            f"{LEAST}: check the weights, the order of the classes and the network's mean and std, or train it longer"
        )
    taken, beyond = baskets["sources"], baskets["beyond"]
    return Found(
        sources=Labelled(taken.stacked(some), torch.tensor(taken.labels, dtype=torch.int64), tuple(taken.ids)),
        calibration=baskets["calibration"].stacked(some),
        wrong=baskets["wrong"].stacked(some),
        beyond=Labelled(beyond.stacked(some), torch.tensor(beyond.labels, dtype=torch.int64), tuple(beyond.ids))
        if beyond.ids
        else None,
        looked=looked,
        right=good,
        refused=len(refusals),
    )


def folds_of(labels: Sequence[int]) -> list[int]:
    """Returns the fold of each image; in every class folds take turns, so that every beginning is spread over all."""
    met: dict[int, int] = {}
    found = []
    for label in labels:
        found.append((met.get(label, 0) + label) % FOLDS)
        met[label] = met.get(label, 0) + 1
    return found


def _use(wanted: Wanted, baskets: dict[str, _Basket], *, hit: bool) -> str:
    """What the next image is used for; sources first, then calibration, then the others."""
    if len(baskets["sources"].ids) < wanted.sources:
        return "sources" if hit else "wrong"
    if len(baskets["calibration"].ids) < wanted.calibration:
        return "calibration"
    if len(baskets["beyond"].ids) < wanted.beyond:
        return "beyond"
    return "" if hit else "wrong"


@dataclass(frozen=True)
class Answers:
    """Labels that a network gives to images, kept for other processes and runs.

    Args:
        cache: where.
        network: digest of all that decides them.
    """

    cache: Cache
    network: str

    def of(self, subject: Subject, images: Tensor) -> Indices:
        """Returns the labels (N,) of a batch."""
        key = digest_of(("answers", self.network, images.numpy()))
        return fetch(self.cache, key, lambda: {"labels": _labels(subject, images)})[0]["labels"]


def answers_of(subject: Subject, cache: Cache | None) -> Answers | None:
    """Returns a network's answers, the same for any number of threads."""
    if cache is None:
        return None
    with one_thread():
        return Answers(cache, digest_of_subject(subject))


def _labels(subject: Subject, images: Tensor) -> Indices:
    with torch.no_grad():
        return subject.logits(images).argmax(1).cpu().numpy()


def _answered(
    subject: Subject, source: Source, order: Indices, refusals: list[Refusal], answers: Answers | None
) -> Iterator[tuple[Tensor, list[int], tuple[str, ...], list[bool]]]:
    """Images, labels, ids, and whether the network is right, batch by batch; what cannot be read is put on the list."""
    for batch in batches(source, refusals, order, size=AT_ONCE):
        taken = images(batch.pixels, subject, layout="NHWC")
        told = _labels(subject, taken) if answers is None else answers.of(subject, taken)
        yield taken, batch.labels.tolist(), batch.ids, np.equal(told, batch.labels).tolist()
