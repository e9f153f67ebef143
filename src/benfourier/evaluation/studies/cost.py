"""Milliseconds per image that detectors cost, measured in turns, so that a slow spell of the machine meets them all."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benfourier.data.images import content_ids
from benfourier.detectors.detector import Detector
from benfourier.detectors.features import extract
from benfourier.detectors.state import on_device
from benfourier.errors import BenfourierError
from benfourier.evaluation.evaluation_data import EvaluationData
from benfourier.evaluation.outcomes import fit_detector, fit_examples
from benfourier.evaluation.studies.study import Job, digest_of_network
from benfourier.evaluation.trials import Trial
from benfourier.metrics.timing import median_seconds, seconds_of
from benfourier.models.classifier import Classifier
from benfourier.models.forward import observe
from benfourier.store.artifact import digest_of
from benfourier.store.records import Cost
from benfourier.store.vocabulary import NEEDS, ProtocolName, Role

VERSION = 4  # of what is measured; raise it with every change
FIRST = 2  # images of the first run; it is doubled while there is time
IMAGES = 64


@dataclass(frozen=True)
class Limits:
    """How long detectors are timed."""

    batch: int = 32  # images at once
    rounds: int = 7  # in which all are timed, one after the other; expensive detectors take part in fewer
    seconds: float = 20.0  # that one detector may take in all rounds, beside its first runs; it takes part in one


def plan_cost_job(data: EvaluationData) -> Job:
    """Returns the job of a plan: all its detectors, each fitted to the first attack."""
    attack = data.plan.labels(Role.BOUNDARY)[0]
    examples = data.examples(data.source, attack)
    images = examples.clean[data.rows(data.source, examples, len(examples), [0])[:IMAGES]]
    entries = {entry.label: entry for entry in data.plan.detectors if data.plan.has_single_fits(entry)}

    def fit(label: str) -> Detector | None:
        trial = Trial(ProtocolName.SAME_ATTACK, label, (attack,), data.source, ())
        try:
            return fit_detector(data, entries[label], fit_examples(data, trial, 0))
        except BenfourierError:
            return None  # its trials have failed too, and say why

    settings = {label: repr((entry.name, entry.options, entry.sources)) for label, entry in entries.items()}
    return cost_job(data.classifier, settings, fit, images)


def cost_job(
    classifier: Classifier,
    settings: Mapping[str, str],
    fit: Callable[[str], Detector | None],
    images: Tensor,
    limits: Limits | None = None,
) -> Job:
    """Returns the job that times detectors: one record each, medians over the rounds.

    Settings are what decides a detector, by label. `fit` returns the detector of a label, or None if it cannot be
    fitted, and has no record. Expensive detectors get only the first few images.
    """
    limits = limits or Limits()
    network, options = digest_of_network(classifier), repr((limits, tuple(images.shape)))
    keys = {digest_of((network, f"cost {VERSION}", options, label, text)): label for label, text in settings.items()}

    def make(*missing: str) -> Iterator[Cost]:
        fitted = {key: fit(keys[key]) for key in missing}
        return time_detectors(classifier, {key: (keys[key], one) for key, one in fitted.items() if one}, images, limits)

    return Job("fitting, then rounds of all detectors", tuple(keys), make)


def time_detectors(
    classifier: Classifier, detectors: Mapping[str, tuple[str, Detector]], images: Tensor, limits: Limits
) -> Iterator[Cost]:
    """Yields the costs of detectors, which are given with their labels by the key of their record."""
    names, batch = content_ids(images), limits.batch

    def forward(few: int) -> None:
        for part in torch.split(images[:few], batch):
            observe(classifier, part, []).logits.cpu()  # the network alone, as detectors run it; waits for a GPU

    def features(detector: Detector, few: int) -> Tensor:
        extractors = [detector.extractor]
        return extract(classifier, extractors, images[:few], names[:few], batch=batch, show_progress=False)[0]

    def head(detector: Detector, rows: Tensor, few: int) -> Tensor:
        return on_device(detector.head, rows.device).score(rows[:few]).cpu()

    with torch.no_grad():
        calls: dict[str, tuple[Callable[[int], object], int]] = {"": (forward, len(images))}  # with their largest size
        for key, (_, detector) in detectors.items():
            first = features(detector, min(FIRST, len(images)))
            rows = first.repeat(-(-batch // len(first)), 1)[:batch]  # the head is timed on one batch
            calls[f"features {key}"] = partial(features, detector), len(images)
            calls[f"head {key}"] = partial(head, detector, rows), len(rows)
        sizes = {name: _size(call, most, limits) for name, (call, most) in calls.items()}
        timed = {name: partial(call, sizes[name][0]) for name, (call, _) in calls.items()}
        rounds = {name: count for name, (_, count) in sizes.items()}
        seconds = median_seconds(timed, limits.rounds, rounds_of=rounds)
    ms = {name: 1000 * spent / sizes[name][0] for name, spent in seconds.items()}
    for key, (label, detector) in detectors.items():
        yield Cost(
            key=key,
            detector=label,
            method=detector.method.name,
            needs=tuple(need for need in NEEDS if need in detector.needs),
            images=sizes[f"features {key}"][0],
            forward_ms=ms[""],
            features_ms=ms[f"features {key}"],
            head_ms=ms[f"head {key}"],
        )


def _size(call: Callable[[int], object], images: int, limits: Limits) -> tuple[int, int]:
    """Images and rounds that fit the time: first one whole batch, then the rounds, then all the images."""
    count = min(FIRST, images)
    call(count)
    seconds = seconds_of(partial(call, count))
    while count < min(limits.batch, images) and seconds <= limits.seconds / 2:
        count = min(2 * count, limits.batch, images)
        seconds = seconds_of(partial(call, count))
    each = seconds / count
    count = max(count, min(images, int(limits.seconds / (limits.rounds * each))))
    return count, max(1, min(limits.rounds, int(limits.seconds / (count * each))))
