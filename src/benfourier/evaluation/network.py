"""The network of a plan and the sources of its images: opened, or trained once and stored in the cache."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benfourier.data.open_source import image_credits, open_source
from benfourier.data.sources import GroupedSource, JoinedSource, Source, SubsetSource, class_difference
from benfourier.data.splits import Indices, split
from benfourier.errors import InputError, PlanError
from benfourier.evaluation.plan import ZOO_WEIGHTS, Plan
from benfourier.models.classifier import Classifier
from benfourier.models.forward import INPUT
from benfourier.models.open_classifier import open_classifier
from benfourier.models.training import TrainingOptions, train
from benfourier.models.weights import fill_weights, read_weights, state_tensors, weights_digest
from benfourier.models.zoo import ZOO
from benfourier.store.artifact import Arrays, digest_of
from benfourier.store.cache import Cache, fetch
from benfourier.version import __version__

NEW_LAYERS, ALL_CORRECT = "head", "until all are right"  # kinds of trainings, as they stand in cache keys
Device = str | torch.device | None  # where a network runs; None leaves it where it was made
WATCHED = 64  # images that show the progress of a training; its result is measured later, on all


@dataclass(frozen=True, eq=False)
class OpenNetwork:
    """A network with the sources of its images."""

    classifier: Classifier
    source: Source
    other: Source | None
    learned: Indices  # rows of the source that it learned from; none if it was not trained here
    held_out: Indices  # rows that it did not learn from


def new_classifier(plan: Plan, device: Device = None) -> Classifier:
    """Returns the classifier of a plan; weights that no file and no zoo gives are drawn with the seed."""
    network = plan.network
    classifier = open_classifier(
        network.model,
        weights=plan.weights_path if network.weights and network.train is None else None,
        digest=network.digest or None if network.train is None else None,
        classes=tuple(network.classes) if isinstance(network.classes, list) else network.classes,
        pretrained=network.train is None,
        seed=plan.seed,
        device=device,
        **network.input,
    )
    if network.train is not None:
        fill_weights(classifier.module, _first_weights(plan), network.weights, part=True)
    return classifier


def open_network(
    plan: Plan, cache: Cache | None, show_progress: bool | None = None, device: Device = None
) -> OpenNetwork:
    """Returns the network and the sources of a plan; a network that is to be trained is, unless the cache has it."""
    classifier = new_classifier(plan, device)
    source = _open_source(plan, plan.source, classifier)
    if isinstance(source, GroupedSource) and source.unknown_groups():
        unknown = f"{source.unknown_groups()[0]}, of which {source.name} has no image"
        raise PlanError(f"data.groups hold {unknown}; name classes that it has")
    others = tuple(_open_source(plan, text, classifier) for text in plan.other)
    other = JoinedSource(others) if len(others) > 1 else others[0] if others else None
    apart = class_difference(source.classes, other.classes) if other is not None else None
    if apart:
        problem = f"data.source and data.other, which is {', '.join(plan.other)}, have {apart}"
        raise PlanError(f"{problem}; data-transfer needs the same classes in the same order")
    learned, held_out = np.empty(0, np.intp), np.arange(len(source))
    network = plan.network
    if network.train is not None:
        shares = {"learn": network.share, "measure": 1 - network.share}
        parts = split(source.ids, source.labels, shares, seed=network.train["seed"])
        learned, held_out = parts["learn"], parts["measure"]
        if network.new_layers is not None:
            with _freeze(classifier, _first_weights(plan)):
                _train(plan, classifier, source, NEW_LAYERS, cache, show_progress)
        _train(plan, classifier, source, ALL_CORRECT if network.until_all_correct else "", cache, show_progress)
    classifier.module.eval().requires_grad_(False)
    if classifier.classes is None:
        classifier = replace(classifier, classes=source.classes)
    return OpenNetwork(classifier, source, other, learned, held_out)


@contextmanager
def _freeze(classifier: Classifier, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Lets only those parameters learn that there are no weights for."""
    parameters = {name: part for name, part in classifier.module.named_parameters() if part.requires_grad}
    frozen = [part for name, part in parameters.items() if name in weights]
    if len(frozen) == len(parameters):
        problem = (
            "network.train.new_layers trains what network.weights leave open, and these weights leave nothing open"
        )
        raise PlanError(f"{problem}; leave new_layers out")
    for part in frozen:
        part.requires_grad_(False)
    yield
    for part in frozen:
        part.requires_grad_(True)


def _train(
    plan: Plan, classifier: Classifier, source: Source, kind: str, cache: Cache | None, show: bool | None
) -> None:
    """Trains the module, unless the cache has its weights; an interrupted training goes on from its last epoch."""
    stage, share = plan.network.new_layers if kind == NEW_LAYERS else plan.network.train, plan.network.share
    assert stage is not None  # a plan that does not train has no stages
    options = TrainingOptions(**stage)
    first = (__version__, torch.__version__, repr(classifier.module), weights_digest(classifier.module))
    # the class of the options was once called Recipe: the keys of weights in caches stay what they were
    settings = repr((options, share)).replace("TrainingOptions(", "Recipe(")
    key = digest_of((*first, source.digest, settings, *([kind] if kind else [])))
    checkpoint = None if cache is None else cache.folder / f"{key}.checkpoint"

    def learn() -> Arrays:
        train(
            classifier,
            source,
            options=options,
            held_out=1 - share,
            test_limit=WATCHED,
            stop_when_fitted=kind == ALL_CORRECT,
            stage="head " if kind == NEW_LAYERS else "",
            checkpoint=checkpoint,
            resume=checkpoint is not None and checkpoint.exists(),
            show_progress=show,
        )
        return {name: tensor.cpu().numpy() for name, tensor in state_tensors(classifier.module).items()}

    weights, _ = fetch(cache, key, learn)
    fill_weights(classifier.module, {name: torch.from_numpy(array) for name, array in weights.items()}, "the cache")
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)


def _first_weights(plan: Plan) -> Mapping[str, Tensor]:
    """The weights that a training begins with; those of the whole network or of a part."""
    network = plan.network
    if network.weights == ZOO_WEIGHTS:
        trunk = ZOO[network.model].trunk
        assert trunk is not None
        return trunk()
    return read_weights(plan.weights_path, network.digest or None)[0] if network.weights else {}


def _open_source(plan: Plan, text: str, classifier: Classifier) -> Source:
    source = classifier.open_source(plan.locate(text), own_classes=not plan.groups)
    if text == plan.source and plan.skip:
        source = SubsetSource(source, plan.skip)
    return GroupedSource(source, plan.groups) if plan.groups else source


def check_files(plan: Plan) -> None:
    """Raises PlanError if a source, a column of its credit, a file of weights, or a layer is not there."""
    for key, text in (("data.source", plan.source), *(("data.other", text) for text in plan.other)):
        if not Path(plan.locate(text)).is_dir():  # folders are looked at once the images' size is known
            with _plan_errors(f"{key}: "):
                open_source(plan.locate(text), channels=plan.network.input.get("channels", 3))
    with _plan_errors("data."):
        image_credits(plan.locate(plan.source), plan.credit)
    if plan.network.weights not in ("", ZOO_WEIGHTS) and not plan.weights_path.is_file():
        raise PlanError(f"network.weights is {plan.network.weights!r}; there is no such file beside the plan")
    classifier = None
    for entry, option in product(plan.detectors, ("layers", "layer")):
        layers = getattr(entry.method, option, None)
        words = [layers] if isinstance(layers, str) else [word for word in layers or () if word != INPUT]
        if words:
            classifier = classifier or new_classifier(plan)
            with _plan_errors(f"{option} of detector {entry.label!r}: "):
                classifier.layer_names(words, pass_through=True)


@contextmanager
def _plan_errors(key: str) -> Iterator[None]:
    """Puts the key of the plan before what is wrong."""
    try:
        yield
    except InputError as error:
        raise PlanError(f"{key}{error}") from error
