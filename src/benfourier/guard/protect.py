"""A guard for a network in one call: check the labels, attack, fit, calibrate, measure."""

import math
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benfourier import progress
from benfourier.attacks.attack import Attack
from benfourier.attacks.catalogue import make_attack
from benfourier.attacks.examples import DEFAULT, MIXTURE, make_examples
from benfourier.data.images import LabelledImages
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.fit import fit
from benfourier.detectors.heads import HEADS
from benfourier.detectors.method import Method
from benfourier.errors import OptionError, check_seed
from benfourier.guard.card import measure
from benfourier.guard.guard import RULES, Guard
from benfourier.guard.inputs import Images, classifier_and_images
from benfourier.metrics.thresholds import check_enough, least_images
from benfourier.models.accuracy import Say, check_labels
from benfourier.models.classifier import Classifier
from benfourier.models.forward import batch_size, leave_out_unsteady_layers
from benfourier.models.identity import classifier_digest
from benfourier.store.artifact import digest_of
from benfourier.store.cache import fetch, open_cache
from benfourier.store.vocabulary import SECOND

BUDGETS = {"1 min": 60, "5 min": 300, "1 h": 3600}  # seconds
ATTACKING = 0.8  # share of the budget that attacks may take
PASSES = 300  # plain forward passes that an attack of the mixture takes for an image, about
LEAST_SOURCES, MOST_SOURCES = 60, 600  # images that are attacked
MEASURED = 0.25  # share of them that is held out from the fit
THRESHOLDS = 0.6  # share of the other images that sets the thresholds; the rest measures false alarms
MOST_CLEAN = 3000  # other images at most
NOISE = 2 / 255  # deviation of the noise where there are no attacks, as a share of the range of pixels


def protect(
    model: nn.Module | Classifier,
    images: Images,
    labels: Any = None,
    *,
    detector: Method | str = "views",
    attacks: str | Mapping[str, Attack | str] | None = DEFAULT,
    false_alarm_rate: float = 0.05,
    budget: str | float = "5 min",
    second: Classifier | None = None,
    work_dir: str | PathLike[str] | None = None,
    seed: int = 0,
    report: Say | None = None,
    show_progress: bool | None = None,
    **image_options: Any,
) -> Guard:
    """Returns a guard for a network, with a card that says what it catches.

    Args:
        model: a module that maps images to logits, or a `Classifier`, which also says which images it takes.
        images: clean images that the network has not learned from, with their labels: a tensor or array with `labels`,
            a folder, a Dataset or DataLoader of pairs, or LabelledImages. 300 are enough for a start.
        labels: true classes of the images of a tensor or array.
        detector: id of a detector, or a method with its options.
        attacks: that the detector is fitted to: "default" for a mixture of weak and strong ones, attacks by label, or
            None for no attack at all, which takes seconds and catches less.
        false_alarm_rate: share of clean images that may be rejected.
        budget: about how long it may take: "1 min", "5 min", "1 h", or seconds; says how many images are attacked.
        second: the other network of `second-opinion`.
        work_dir: folder for finished work; with the same one, an interrupted call goes on. By default the cache.
        seed: of all draws.
        report: called with a sentence for each stage; by default these are printed on standard error.
        show_progress: True for bars; None for bars on a terminal and plain lines elsewhere; False for nothing.
        image_options: of `Classifier`, for a module: bounds, mean, std, classes, size, channels, resize. Size and
            channels are those of the images; bounds are (0, 1) for images within them.
    """
    say = report or partial(_print_stage, show_progress)
    methods, limit = _methods(attacks), _seconds(budget)
    method = _method(detector, methods, second)
    # elsewhere than on a terminal a plain line is printed now and then
    with progress.progress_lines() if show_progress is None else nullcontext():
        most = 2 * MOST_SOURCES + MOST_CLEAN
        classifier, data = classifier_and_images(model, images, labels, image_options, most=most, seed=check_seed(seed))
        logits, seconds = _logits(classifier, data.images, show_progress)
        accuracy = check_labels(logits, data.labels, classifier.classes, say)
        leave_out_unsteady_layers(classifier, [data.images], show_progress=show_progress)
        digest = classifier_digest(classifier, tuple(data.images.shape[1:]))
        # stored, so that the same call attacks the same images after an interruption, however fast the machine is then
        key = digest_of(("sources", digest, *data.content_ids, *methods, str(limit)))
        stored, _ = fetch(
            open_cache(work_dir or True),
            key,
            lambda: {"count": np.array([_sources(limit, seconds, len(methods), say)])},
        )
        count = min(len(data) // 2, int(stored["count"][0]))
        others = data.take(range(count, len(data)))
        cut = round(THRESHOLDS * len(others))
        _check_enough(false_alarm_rate, cut, len(data))
        fitted = round((1 - MEASURED) * count)
        # others set the thresholds, so that nothing needs the misclassified ones of the sources
        right = (logits.argmax(1) == data.labels)[:count].nonzero().flatten()
        options: dict[str, Any] = {"seed": seed, "cache": work_dir or True, "show_progress": show_progress}
        say(f"attacking {count} images" if methods else f"adding noise to {count} images")
        mixture = {} if attacks is None else methods
        spread = classifier.bounds[1] - classifier.bounds[0]
        noise: Any = ("each" if attacks == DEFAULT else "median") if methods else {"noisy": NOISE * spread}
        examples = make_examples(classifier, data.take(right[right < fitted]), attacks=mixture, noise=noise, **options)
        held_out = None
        if methods:
            measured = {**methods, **_more_attacks(spread, methods)}
            held_out = make_examples(
                classifier, data.take(right[right >= fitted]), attacks=measured, noise="median", **options
            )
        say(f"fitting {method.name} to {len(examples)} images")
        fitted_detector = fit(
            method,
            classifier,
            examples,
            supplied={} if second is None else {SECOND: second},
            work_dir=work_dir,
            show_progress=show_progress,
        )
        left_out = fitted_detector.summary["learned"].get("left_out")
        if left_out:
            say(f"views that change the label of too many images are left out: {left_out}")
        say(f"setting thresholds with {cut} images, measuring with {len(others) - cut}")
        clean = others.images[:cut]
        guard = Guard.calibrated(
            fitted_detector, clean, false_alarm_rate, known=examples.clean, show_progress=show_progress
        )
        unseen = others.take(range(cut, len(others)))
        card = measure(guard, held_out, unseen, accuracy=accuracy, show_progress=show_progress)
        return replace(guard, card=card)


def recalibrate(guard: Guard, clean: LabelledImages, *, show_progress: bool | None = None) -> Guard:
    """Returns a guard with thresholds and false alarms from new clean images; nothing is fitted or attacked again.

    Args:
        guard: made elsewhere, or for other images.
        clean: labelled images as the guard will see them, misclassified ones among them; two fifths are held out to
            measure false alarms.
        show_progress: True or False to force the bars; None draws them on a terminal.
    """
    logits, _ = _logits(guard.classifier, clean.images, show_progress)
    accuracy = check_labels(logits, clean.labels, guard.classifier.classes)
    cut = round(THRESHOLDS * len(clean))
    renewed = guard.recalibrated(clean.images[:cut], show_progress=show_progress)
    unseen = clean.take(range(cut, len(clean)))
    measured = measure(renewed, None, unseen, accuracy=accuracy, show_progress=show_progress)
    if renewed.card is None or not renewed.card.attacks:
        return replace(renewed, card=measured)
    # scores of attacked images do not depend on thresholds: their rates follow from the card
    before = renewed.card.attacked or renewed.card.date
    return replace(renewed, card=replace(measured, attacks=renewed.card.attacks, attacked=before))


def _methods(attacks: str | Mapping[str, Attack | str] | None) -> dict[str, Attack]:
    """The attacks of the fit by label; none for None."""
    if attacks is None:
        return {}
    if attacks == DEFAULT:
        return dict(MIXTURE)
    if not isinstance(attacks, Mapping) or not attacks:
        raise OptionError(
            f'attacks is {attacks!r}; it must be "default", None, or attacks by label, such as {{"bim": "bim"}}',
            "attacks",
        )
    return {label: make_attack(each) if isinstance(each, str) else each for label, each in attacks.items()}


def _method(detector: Method | str, attacks: Mapping[str, Attack], second: Classifier | None) -> Method:
    """The detector's method; without attacks it takes a form that needs none."""
    method = detector if isinstance(detector, Method) else make_method(detector)
    if not isinstance(detector, Method) and not attacks and HEADS[method.head_options.kind].needs_adversarial:
        method = make_method(detector, **({"features": "drop"} if detector == "views" else {"head": "mixture"}))
    names = [name for part in method.parts_of_fit() for name in part.supplied_names]
    if (SECOND in names) != (second is not None):
        problem = f"{method.name} {'needs' if second is None else 'does not take'} a second network"
        raise OptionError(f"{problem}; {'pass it as second=' if second is None else 'leave second out'}", "second")
    return method


def _check_enough(rate: float, thresholds: int, images: int) -> None:
    """Raises OptionError, with the number of images that protect needs in all, unless enough set the thresholds."""
    try:
        check_enough(rate, thresholds, RULES)
    except OptionError as error:
        least = math.ceil(2 * (least_images(rate, RULES) + 1) / THRESHOLDS) if 0 < rate < 1 else 0
        hint = f". Of {images} images {thresholds} set the thresholds; {least} in all are enough" if least else ""
        raise OptionError(f"{error}{hint}", "false_alarm_rate") from error


def _more_attacks(spread: float, fitted: Mapping[str, Attack]) -> dict[str, Attack]:
    """Attacks that the guard is measured on beside those of its fit: at the boundary, and of a usual strength."""
    attacks = {"deepfool": make_attack("deepfool"), "r-pgd 8/255": make_attack("r-pgd-fixed", eps=8 / 255 * spread)}
    return {label: attack for label, attack in attacks.items() if label not in fitted}


def _print_stage(show: bool | None, text: str) -> None:
    if show is not False:
        sys.stderr.write(f"{text}\n")


def _seconds(budget: str | float) -> float:
    if isinstance(budget, str) and budget in BUDGETS:
        return BUDGETS[budget]
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget < float("inf"):
        allowed = ", ".join(repr(word) for word in BUDGETS)
        raise OptionError(f"budget is {budget!r}; it must be one of {allowed}, or a number of seconds", "budget")
    return float(budget)


def _sources(budget: float, seconds: float, attacks: int, say: Say) -> int:
    """How many images can be attacked within the budget, from the seconds that an image takes."""
    each = seconds * PASSES * max(attacks, 1) if attacks else seconds
    count = int(min(max(ATTACKING * budget / each, LEAST_SOURCES), MOST_SOURCES))
    expected = count * each
    if expected > budget:
        say(f"fewer than {LEAST_SOURCES} images teach too little; they take about {progress.duration(expected)}")
    return count


def _logits(classifier: Classifier, images: Tensor, show: bool | None) -> tuple[Tensor, float]:
    """The logits of all images, and the seconds that one takes after the first batch."""
    size = batch_size(classifier, images.shape[1:])
    parts, start = [], 0.0
    with torch.no_grad(), progress.bar(len(images), "clean images", show=show) as advance:
        for part in torch.split(images, size):
            begin = time.perf_counter()
            parts.append(classifier.logits(part).cpu())
            start = (time.perf_counter() - begin) / len(part)  # that of the last: the first one warms up
            advance(len(part))
    return torch.cat(parts), start
