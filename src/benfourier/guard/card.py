"""Measures what a guard does, on images that its fit has not seen."""

import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benfourier import progress
from benfourier.data.changes import OTHER_KINDS, change
from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages
from benfourier.errors import ActivationError
from benfourier.guard.guard import Guard
from benfourier.guard.rates import alarm_rate, attack_rate_at
from benfourier.metrics.intervals import rate_of
from benfourier.models.classifier import Classifier
from benfourier.models.forward import logits_in_batches
from benfourier.models.identity import describe_classifier
from benfourier.models.image_formats import IMAGE_OPTIONS
from benfourier.store.card import AttackRate, GuardCard, MeasuredScores
from benfourier.store.records import Estimate

CHANGED = {"noise": "noise of ±8/255", "jpeg": "JPEG of quality 75"}  # of the kinds in data/changes.py
CHUNK = 64  # images that are changed at once
OTHERS = 50  # images of each other kind at most: 50 of 50 have an interval from 93 to 100 %
TRIAL = 4  # images whose forward passes are counted


def measure(
    guard: Guard,
    examples: Examples | None,
    clean: LabelledImages | None,
    *,
    accuracy: Estimate | None = None,
    show_progress: bool | None = None,
) -> GuardCard:
    """Returns the card of a guard.

    Args:
        guard: with its thresholds.
        examples: attacked images, none of whose sources the fit has seen; None if there are none. Attacks that the
            detector was fitted to have its labels.
        clean: images that neither the fit nor the thresholds have seen, as they come, misclassified ones among them;
            None if there are none: then the card has the alarms among those that set the thresholds, and changes of
            the clean images of the examples.
        accuracy: of the network, if it is known.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    fitted = tuple(guard.detector.summary["attacks"])
    attacks = () if examples is None else examples.attacks
    kinds = {} if clean is None else _kinds(guard.classifier, clean)
    if clean is None and examples is not None:  # all of them are classified correctly
        clean = LabelledImages(examples.clean, examples.labels, examples.ids)
        kinds = {words: (torch.arange(len(clean)), kind) for kind, words in CHANGED.items()}
    others = () if clean is None else tuple(OTHER_KINDS)
    rates, alarms, other_kinds, limits = [], [], [], (guard.threshold.value, guard.most_unfamiliar)
    total = len(attacks) + len(kinds) + len(others)
    with progress.bar(total, "measuring the guard", show=show_progress) as advance:
        for attack in attacks:
            assert examples is not None
            rates.append(_attack_rate(guard, examples, attack, attack in fitted))
            advance(1, attack)
        for kind, (rows, changed) in kinds.items():
            assert clean is not None
            alarms.append(alarm_rate(kind, _changed_scores(guard, clean.images, rows, changed), *limits))
            advance(1, kind)
        for kind in others:
            assert clean is not None
            first = torch.arange(min(len(clean), OTHERS))
            with suppress(ActivationError):  # a network that divides by an image's spread has no logits for one colour
                other_kinds.append(alarm_rate(kind, _changed_scores(guard, clean.images, first, kind), *limits))
            advance(1, kind)
    threshold = guard.threshold
    if "clean" not in kinds:
        own = MeasuredScores(tuple(guard.calibration.scores), tuple(guard.calibration.unfamiliarity))
        alarms.insert(0, alarm_rate("those that set the thresholds", own, *limits))
    description = describe_classifier(guard.classifier)
    passes, classes = _trial(guard)
    return GuardCard(
        network=type(guard.classifier.module).__name__,
        weights=str(description["weights"]),
        preprocessing={name: description[name] for name in IMAGE_OPTIONS},
        classes=classes,
        accuracy=accuracy,
        detector=guard.detector.method.name,
        passes=passes,
        false_alarm_rate=threshold.rate,
        thresholds=threshold.images,
        fitted=fitted,
        attacks=tuple(rates),
        alarms=tuple(alarms),
        other_kinds=tuple(other_kinds),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={name: version(name) for name in ("benfourier", "torch")} | {"python": platform.python_version()},
        base_model=_hub_name(guard.classifier.module),
    )


def _hub_name(module: nn.Module) -> str:
    """The name on the Hugging Face Hub that a module of transformers was loaded from; empty if there is none."""
    name = str(getattr(getattr(module, "config", None), "_name_or_path", ""))
    return name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not Path(name).exists() else ""  # it may be a folder


def _kinds(classifier: Classifier, clean: LabelledImages) -> dict[str, tuple[Tensor, str | None]]:
    """Rows of images that nobody attacked, and how they are changed, by kind in words; empty kinds are left out."""
    right = logits_in_batches(classifier, clean.images).argmax(1) == clean.labels
    rows = torch.arange(len(clean))
    kinds: dict[str, tuple[Tensor, str | None]] = {"clean": (rows, None), "misclassified": (rows[~right], None)}
    kinds |= {words: (rows[right], kind) for kind, words in CHANGED.items()}  # a change may itself make the network err
    return {kind: entry for kind, entry in kinds.items() if len(entry[0])}


def _changed_scores(guard: Guard, images: Tensor, rows: Tensor, changed: str | None) -> MeasuredScores:
    """The scores of some images, changed in small parts: a thousand photographs would take gigabytes more."""
    scores: list[MeasuredScores] = []
    for part in torch.split(rows, CHUNK):
        chosen = images[part]
        scores.append(_scores(guard, chosen if changed is None else change(changed, chosen, guard.classifier.bounds)))
    return MeasuredScores(
        tuple(chain.from_iterable(each.adversarial for each in scores)),
        tuple(chain.from_iterable(each.unfamiliar for each in scores)),
    )


def _scores(guard: Guard, images: Tensor) -> MeasuredScores:
    if not len(images):
        return MeasuredScores((), ())
    verdicts = guard.judge(list(images))
    return MeasuredScores(tuple(verdicts.score.tolist()), tuple(verdicts.unfamiliarity.tolist()))


def _attack_rate(guard: Guard, examples: Examples, attack: str, is_fitted: bool) -> AttackRate:
    description: Mapping[str, Any] = examples.options.get("attacks", {}).get(attack, {})
    rows = examples.success[attack]
    attacked, clean = examples.adversarial[attack][rows], examples.clean[rows]
    added = (attacked.double() - clean.double()).flatten(1)
    unrated = AttackRate(
        attack=attack,
        method=str(description.get("attack", attack)),
        options=dict(description.get("options", {})),
        is_fitted=is_fitted,
        tried=len(examples),
        succeeded=len(attacked),
        rejected=0,
        share=rate_of(0, len(attacked)),
        l2=float(added.norm(dim=1).median()) if len(attacked) else float("nan"),
        linf=float(added.abs().amax(1).median()) if len(attacked) else float("nan"),
        scores=_scores(guard, attacked),
    )
    return attack_rate_at(unrated, guard.threshold.value, guard.most_unfamiliar)


def _trial(guard: Guard) -> tuple[float, int]:
    """How many forward passes of the guarded network an image takes, and how many classes it has."""
    images, rows = guard.classifier.noise(TRIAL, tuple(guard.detector.summary["shape"])), list[int]()
    handle = guard.classifier.module.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    try:
        verdicts = guard.judge(list(images))
    finally:
        handle.remove()
    return sum(rows) / TRIAL, verdicts.logits.shape[1]
