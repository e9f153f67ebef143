"""The network of a plan: opened, or trained once and kept in the cache."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

import benfourier
from benfourier.data.groups import GroupedSource
from benfourier.data.joined import JoinedSource
from benfourier.data.opening import open_source
from benfourier.data.source import Source, classes_apart
from benfourier.data.splits import Indices, split
from benfourier.errors import PlanError
from benfourier.evaluation.plan import ZOOS, Plan
from benfourier.evaluation.plan_reading import place_of, weights_of
from benfourier.store.artifact import Arrays
from benfourier.store.cache import Cache, fetch
from benfourier.store.digest import digest_of
from benfourier.subjects.naming import open_subject
from benfourier.subjects.recipe import Recipe
from benfourier.subjects.subject import Subject
from benfourier.subjects.training import train
from benfourier.subjects.weights import digest_of_weights, fill, read_weights, tensors_of
from benfourier.subjects.zoo import ZOO

HEAD, ALL = "head", "until all are right"  # kinds of trainings
WATCHED = 64  # images that tell after each epoch how a training goes; what it came to is measured later, on all


@dataclass(frozen=True, eq=False)
class Opened:
    """A network with the source of its images.

    Args:
        subject: the network, with its weights.
        source: of images.
        other: a second source; None if there is none.
        learned: rows of the source that it learned from; none if it was not trained here.
        held: rows that are left for detection.
    """

    subject: Subject
    source: Source
    other: Source | None
    learned: Indices
    held: Indices


def fresh(plan: Plan) -> Subject:
    """Returns the subject of a plan; what no file and no zoo gives weights for is drawn with the seed."""
    network = plan.network
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        subject = open_subject(
            network.model,
            weights=weights_of(plan) if network.weights and network.train is None else None,
            digest=network.digest or None if network.train is None else None,
            classes=tuple(network.classes) if isinstance(network.classes, list) else network.classes,
            pretrained=network.train is None,
            **network.look,
        )
    if network.train is not None:
        fill(subject.module, _first(plan), network.weights, part=True)
    return subject


def open_network(plan: Plan, cache: Cache | None, show_progress: bool | None = None) -> Opened:
    """Returns the network and the sources of a plan; a network that is to be trained is, unless the cache has it."""
    subject = fresh(plan)
    source = _source(plan, plan.source, subject)
    if isinstance(source, GroupedSource) and source.strangers():
        raise PlanError(
            f"data.groups hold {source.strangers()[0]}, of which {source.name} has no image; name classes that it has"
        )
    others = tuple(_source(plan, text, subject) for text in plan.other)
    other = JoinedSource(others) if len(others) > 1 else others[0] if others else None
    apart = classes_apart(source.classes, other.classes) if other is not None else None
    if apart:
        raise PlanError(
            f"data.source and data.other, which is {', '.join(plan.other)}, have {apart}; data-transfer needs the same "
            "classes in the same order"
        )
    learned, held = np.empty(0, np.intp), np.arange(len(source))
    if plan.network.train is not None:
        recipe, share = Recipe(**plan.network.train), plan.network.share
        parts = split(source.ids, source.labels, {"learn": share, "measure": 1 - share}, seed=recipe.seed)
        learned, held = parts["learn"], parts["measure"]
        with _given_at_rest(plan, subject) as head:
            if head is not None:
                _learn(subject, source, head, share, cache, show_progress, HEAD)
        _learn(subject, source, recipe, share, cache, show_progress, *([ALL] if plan.network.until_right else []))
    subject.module.eval().requires_grad_(False)
    if subject.classes is None:
        subject = replace(subject, classes=source.classes)
    return Opened(subject, source, other, learned, held)


def _first(plan: Plan) -> Mapping[str, Tensor]:
    """The weights that a training begins with; those of the whole network or of a part."""
    network = plan.network
    if network.weights == ZOOS:
        trunk = ZOO[network.model].trunk
        assert trunk is not None
        return trunk()
    return read_weights(weights_of(plan), network.digest or None)[0] if network.weights else {}


@contextmanager
def _given_at_rest(plan: Plan, subject: Subject) -> Iterator[Recipe | None]:
    """The recipe of the training that comes first, if any does; what weights were given for does not learn in it."""
    if plan.network.head is None:
        yield None
        return
    given = _first(plan)
    learning = {name: part for name, part in subject.module.named_parameters() if part.requires_grad}
    at_rest = [part for name, part in learning.items() if name in given]
    if len(at_rest) == len(learning):
        raise PlanError("network.train.head is given, but network.weights leave nothing open; leave it out")
    for part in at_rest:
        part.requires_grad_(False)
    yield Recipe(**plan.network.head)
    for part in at_rest:
        part.requires_grad_(True)


def _learn(
    subject: Subject, source: Source, recipe: Recipe, share: float, cache: Cache | None, show: bool | None, *marks: str
) -> None:
    """Trains the module, unless the cache has its weights; an interrupted training goes on from its last epoch."""
    first = (benfourier.__version__, torch.__version__, repr(subject.module), digest_of_weights(subject.module))
    key = digest_of((*first, source.digest, repr((recipe, share)), *marks))
    kept = None if cache is None else cache.folder / f"{key}.checkpoint"

    def trained() -> Arrays:
        train(
            subject,
            source,
            recipe=recipe,
            held_out=1 - share,
            measured=WATCHED,
            until_right=ALL in marks,
            stage="head " if HEAD in marks else "",
            checkpoint=kept,
            resume=kept is not None and kept.exists(),
            show_progress=show,
        )
        return {name: tensor.numpy() for name, tensor in tensors_of(subject.module).items()}

    weights, _ = fetch(cache, key, trained)
    fill(subject.module, {name: torch.from_numpy(array) for name, array in weights.items()}, "the cache")
    if kept is not None:
        kept.unlink(missing_ok=True)


def _source(plan: Plan, text: str, subject: Subject) -> Source:
    found = open_source(
        place_of(plan, text),
        classes=None if plan.groups else subject.classes,
        channels=subject.known_channels or 3,
        size=subject.height_width,
        resize=subject.resize,
    )
    return GroupedSource(found, plan.groups) if plan.groups else found
