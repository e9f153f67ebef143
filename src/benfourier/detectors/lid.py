"""LID: local intrinsic dimension of every layer among benign images (Ma 2018, arXiv:1801.02613).

LID_l(x) = −(1/k Σ_i ln(r_i / r_k))⁻¹: r_i the distance from layer l's response to x to the i-th nearest response among
a mini-batch of clean training images.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from benfourier.data.splits import spread
from benfourier.detectors.dimensions import Dimensions, Distances, Shared, Trial
from benfourier.detectors.fitting import measured
from benfourier.detectors.held_out import auroc, some
from benfourier.detectors.listening import INPUT, named
from benfourier.detectors.method import Lessons, Method, checked_layers
from benfourier.detectors.neighbours import MOST, Recalled, entries_of, precise, recall
from benfourier.detectors.references import Pool
from benfourier.errors import InputError, OptionError, check_whole
from benfourier.subjects.subject import Subject

KS = tuple(range(10, 100, 10))  # the authors' grid
TIMES = 4  # as many images as there are references may be in a pool that fits share
WIDEST = 2**13  # distances per image that fits share


@dataclass(frozen=True, kw_only=True)
class LID(Method):
    """One number per layer.

    Args:
        k: neighbours that count, fewer than the mini-batch has images; "cv" chooses among 10, 20, ..., 90.
        batch: images in a mini-batch; fewer if there are fewer.
        references: mini-batches, over which the numbers are averaged.
        layers: names, globs or "type:Conv2d", "input-image" for the image itself; None for that and all layers.
        pass_through: also layers that only pass numbers on in eval mode.
        official: leave the nearest neighbour out, whichever it is, as the authors' code does; otherwise the image's
            own source, if it is among them.
    """

    k: int | str = 20
    batch: int = 100
    references: int = 1
    layers: tuple[str, ...] | None = None
    pass_through: bool = True
    official: bool = False

    name: ClassVar[str] = "lid"
    version: ClassVar[int] = 2
    own: ClassVar[str] = "logistic"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {"rules": "authors", "scaling": "min-max", "official": True},
        "paper-imagenet": {"batch": 50, "k": 20},
    }
    needs = frozenset({"listens"})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("batch", self.batch, least=3)
        check_whole("references", self.references)
        object.__setattr__(self, "layers", checked_layers(self.layers))
        if self.k != "cv" and check_whole("k", self.k, least=2) > self.batch - 1:
            raise OptionError(
                f"k is {self.k} and the mini-batch {self.batch}; without an image's own source {self.batch - 1} are "
                "left: ask for fewer neighbours or a larger mini-batch"
            )

    def learn(self, subject: Subject, lessons: Lessons) -> Dimensions:
        """Returns the reference images, and the k that was asked for or found."""
        examples = lessons.examples
        plan = subject.plan(tuple(examples.clean.shape[1:]))
        batch, least = min(self.batch, len(examples)), KS[0] if self.k == "cv" else int(self.k)
        if least > batch - 1:
            raise InputError(
                f"there are {len(examples)} clean images to take neighbours from; {least} neighbours need at least "
                f"{least + 1}: give more examples or a smaller k"
            )
        every = (INPUT, *named(plan, None, pass_through=self.pass_through))
        names = every if self.layers is None else named(plan, self.layers, pass_through=self.pass_through)
        order = spread(examples.ids, examples.labels.numpy(), seed=self.seed)
        chosen = np.resize(order, self.references * batch)  # round and round, if there are too few for all batches
        kept = {
            "layers": names,
            "images": examples.clean[torch.from_numpy(chosen)],
            "ids": [examples.ids[row] for row in chosen],
            "batch": batch,
            "k": least,
            "official": self.official,
        }
        if self.k != "cv":
            distances = lessons.pool and _shared(subject, lessons.pool, kept)
            return _sharing(subject, kept, distances) if distances else self.restore(subject, kept)
        measure = self.restore(subject, kept)
        return replace(measure, k=self._best(subject, lessons, measure), responses=measure.known)

    def restore(self, subject: Subject, kept: Mapping[str, Any]) -> Dimensions:
        """Returns the measure, its references shown to the subject again."""
        layers, ids = tuple(kept["layers"]), tuple(kept["ids"])
        responses = recall(subject, kept["images"], ids, layers)
        return Dimensions(**{**kept, "layers": layers, "ids": ids}, responses=responses)

    def _best(self, subject: Subject, lessons: Lessons, measure: Dimensions) -> int:
        """The k that tells held-out sources apart best."""
        ks = tuple(k for k in KS if k < measure.batch)
        few = some(lessons.examples, self.seed)
        rows = measured(subject, Trial(measure, ks), few, f"{self.name}: k", lessons.show_progress)
        numbers = rows.numbers.numpy().reshape(len(rows), len(ks), -1)
        worth = [auroc(numbers[:, place], rows, self.seed) for place in range(len(ks))]
        return ks[int(np.argmax(worth))]


def _shared(subject: Subject, pool: Pool, kept: Mapping[str, Any]) -> Distances | None:
    """Distances to all images of a pool, if it holds the references and is not much larger than they are."""
    places, layers = {name: place for place, name in enumerate(pool.ids)}, tuple(kept["layers"])
    entries = entries_of(subject, pool.images, layers)
    own, all_of_them = (4 * len(images) * sum(entries) for images in (kept["images"], pool.images))
    large = len(pool.ids) > TIMES * len(kept["ids"]) or len(pool.ids) * len(layers) > WIDEST
    if large or all_of_them > 2 * MOST or precise(own) != precise(all_of_them) or not places.keys() >= set(kept["ids"]):
        return None
    if not torch.equal(pool.images[[places[name] for name in kept["ids"]]], kept["images"]):
        return None
    found = pool.shared.get(layers)
    if found is None:
        responses = Recalled(subject, pool.images, pool.ids, layers)
        found = pool.shared[layers] = Distances(layers, entries, pool.images, pool.ids, responses)
    return found


def _sharing(subject: Subject, kept: Mapping[str, Any], distances: Distances) -> Shared:
    """The measure whose numbers are made of distances that others share; its own responses wait until asked for."""
    layers, ids = tuple(kept["layers"]), tuple(kept["ids"])
    responses = Recalled(subject, kept["images"], ids, layers)
    return Shared(**{**kept, "layers": layers, "ids": ids}, responses=responses, distances=distances)
