"""The network of a plan: opened, or trained once and kept in the cache."""

from dataclasses import dataclass, replace

import numpy as np
import torch

import benfourier
from benfourier.data.opening import open_source
from benfourier.data.source import Source
from benfourier.data.splits import Indices, split
from benfourier.errors import PlanError
from benfourier.evaluation.plan import Plan
from benfourier.evaluation.plan_reading import place_of, weights_of
from benfourier.store.artifact import Arrays
from benfourier.store.cache import Cache, fetch
from benfourier.store.digest import digest_of
from benfourier.subjects.naming import open_subject
from benfourier.subjects.recipe import Recipe
from benfourier.subjects.subject import Subject
from benfourier.subjects.training import train
from benfourier.subjects.weights import digest_of_weights, fill, tensors_of


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
    """Returns the subject of a plan; without a file, its weights are those of the zoo or drawn with the seed."""
    network = plan.network
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        return open_subject(
            network.model,
            weights=weights_of(plan) if network.weights else None,
            digest=network.digest or None,
            classes=tuple(network.classes) if isinstance(network.classes, list) else network.classes,
            pretrained=network.train is None,
            **network.look,
        )


def open_network(plan: Plan, cache: Cache | None, show_progress: bool | None = None) -> Opened:
    """Returns the network and the sources of a plan; a network that is to be trained is, unless the cache has it."""
    subject = fresh(plan)
    source = _source(plan, plan.source, subject)
    other = _source(plan, plan.other, subject) if plan.other else None
    if other is not None and len(other.classes) != len(source.classes):
        raise PlanError(
            f"data.other is {plan.other!r} with {len(other.classes)} classes, and data.source has "
            f"{len(source.classes)}; data-transfer needs the same classes in both"
        )
    learned, held = np.empty(0, np.intp), np.arange(len(source))
    if plan.network.train is not None:
        recipe, share = Recipe(**plan.network.train), plan.network.share
        parts = split(source.ids, source.labels, {"learn": share, "measure": 1 - share}, seed=recipe.seed)
        learned, held = parts["learn"], parts["measure"]
        first = (benfourier.__version__, torch.__version__, repr(subject.module), digest_of_weights(subject.module))
        key = digest_of((*first, source.digest, repr((recipe, share))))
        weights, _ = fetch(cache, key, lambda: _trained(subject, source, recipe, share, cache, key, show_progress))
        fill(subject.module, {name: torch.from_numpy(array) for name, array in weights.items()}, "the cache")
    subject.module.eval().requires_grad_(False)
    if subject.classes is None:
        subject = replace(subject, classes=source.classes)
    return Opened(subject, source, other, learned, held)


def _trained(
    subject: Subject, source: Source, recipe: Recipe, share: float, cache: Cache | None, key: str, show: bool | None
) -> Arrays:
    """The weights after training; an interrupted one goes on from its last epoch."""
    kept = None if cache is None else cache.folder / f"{key}.checkpoint"
    go_on = kept is not None and kept.exists()
    train(subject, source, recipe=recipe, held_out=1 - share, checkpoint=kept, resume=go_on, show_progress=show)
    if kept is not None:
        kept.unlink(missing_ok=True)
    return {name: tensor.numpy() for name, tensor in tensors_of(subject.module).items()}


def _source(plan: Plan, text: str, subject: Subject) -> Source:
    return open_source(
        place_of(plan, text),
        classes=subject.classes,
        channels=subject.known_channels or 3,
        size=subject.height_width,
        resize=subject.resize,
    )
