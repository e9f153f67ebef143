"""How every method is fitted: split, learn, measure, classify, calibrate."""

import time
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch

from benfourier import progress
from benfourier.data.draws import names_by_content
from benfourier.data.examples import Examples
from benfourier.data.labelled import Labelled
from benfourier.data.splits import split
from benfourier.detectors.calibration import sigmoid_of
from benfourier.detectors.classifiers import train
from benfourier.detectors.detector import Detector, numbers_of
from benfourier.detectors.method import Lessons, Measure, Method, Staged
from benfourier.detectors.rows import Rows, parts_of, stacked
from benfourier.detectors.svm import Svm
from benfourier.errors import FitError, InputError
from benfourier.subjects.subject import Subject, check_wrapped
from benfourier.subjects.weights import digest_of_weights

if TYPE_CHECKING:
    from benfourier.detectors.memo import Memo

CALIBRATE = 0.2  # share of the source images that the classifier does not see: 16 of 80
LEAST = 10  # source images


def fit(
    method: Method,
    subject: Subject,
    examples: Examples,
    *,
    clean: Labelled | None = None,
    show_progress: bool | None = None,
    memo: "Memo | None" = None,
    foreign: bool = False,
) -> Detector:
    """Returns the detector that a method makes of examples.

    A fifth of the source images is held out for the posterior and the far field; the rest fits everything else.

    Args:
        method: what to fit.
        subject: the classifier to guard.
        examples: clean images with their noisy and adversarial twins.
        clean: labelled clean images beyond the examples, for methods that use them.
        show_progress: True or False to force progress bars; None draws them on a terminal.
        memo: numbers that are known already; only methods whose numbers, or the stages of them, last use it.
        foreign: the examples may have been made with other weights than the subject's.
    """
    start = time.perf_counter()
    check_wrapped(subject)
    weights = digest_of_weights(subject.module)
    if not foreign and examples.options.get("weights", weights) != weights:
        raise InputError(
            "these examples were made with other weights than the subject's, and what misled those may not mislead it; "
            "load the weights that they were made with, or make examples with these (foreign=True, or --foreign, takes "
            "them as they are)"
        )
    _check(method, subject, examples, clean)
    fitted, held = _split(examples, method.seed)
    known = memo if method.lasting else None
    pool = None if memo is None else memo.references
    measure = method.learn(subject, Lessons(fitted, clean, show_progress, known, pool))
    memo = memo if method.lasting or isinstance(measure, Staged) else None
    rows = measured(subject, measure, fitted, method.name, show_progress, memo)
    with progress.spinner(f"{method.name}: final classifier, {len(rows)} rows", show=show_progress):
        trained = train(method, rows)
    classifier = trained.classifier
    apart = measured(subject, measure, held, method.name, show_progress, memo)
    if isinstance(classifier, Svm):
        classifier = classifier.guarded(apart.benign, rows.numbers)
        trained.facts["tau"] = classifier.log_tau
    scores = classifier.score(apart.numbers).numpy()
    sigmoid = sigmoid_of(scores, apart.adversarial)
    summary = {**_summary(rows, apart, examples), **trained.facts, "weights": weights}
    summary["learned"] = _learned(measure)
    summary["seconds"] = round(time.perf_counter() - start, 3)
    return Detector(method, subject, measure, classifier, sigmoid, summary, _seen(examples, clean))


def measured(
    subject: Subject,
    measure: Measure,
    examples: Examples,
    label: str,
    show_progress: bool | None = None,
    memo: "Memo | None" = None,
) -> Rows:
    """Returns the numbers of clean, noisy and attacked images; twins know their source."""
    found = []
    for part in parts_of(examples):
        if memo is not None:
            numbers = memo.of(subject, measure, part.images, part.ids)
        else:
            told = f"{label}: {part.kind}"
            (numbers,) = numbers_of(subject, [measure], part.images, part.ids, label=told, show_progress=show_progress)
        found.append((part, numbers))
    return stacked(found)


def _check(method: Method, subject: Subject, examples: Examples, clean: Labelled | None) -> None:
    for part in parts_of(examples):
        subject.check(part.images)
    if len(examples) < LEAST:
        raise FitError(f"there are {len(examples)} source images; fitting needs at least {LEAST}")
    if clean is not None:
        subject.check(clean.images)
    if clean is None and method.clean == "needed":
        raise InputError(f"{method.name} learns from clean images beyond the examples; pass clean=Labelled(...)")
    if clean is not None and method.clean == "none":
        raise InputError(f"{method.name} does not use clean images beyond the examples; leave clean out")
    if clean is not None and method.clean == "optional" and method.rules == "paper":
        raise InputError(
            f"the paper's rules give {method.name} no images beyond the examples; leave clean out, or set "
            "rules='authors'"
        )


def _split(examples: Examples, seed: int) -> tuple[Examples, Examples]:
    """The examples to fit on and those to calibrate with; sources without any success are spread over both."""
    won = torch.stack(list(examples.success.values())).any(0)
    count = int(won.sum())
    if count < 2:
        raise FitError(f"{count} source images have an adversarial twin; fitting needs at least 2: attack more images")
    classes = won.long() if len(examples) - count >= 2 else won.long() * 0
    shares = {"fit": 1 - CALIBRATE, "calibrate": CALIBRATE}
    parts = split(examples.ids, classes.numpy(), shares, seed=seed)
    return examples.take(parts["fit"], "fit"), examples.take(parts["calibrate"], "calibrate")


def _seen(examples: Examples, clean: Labelled | None) -> frozenset[str]:
    """Names of all benign images that a fit looks at."""
    sets = [examples.clean, examples.noisy] + ([] if clean is None else [clean.images])
    return frozenset(name for images in sets for name in names_by_content(images))


def _summary(rows: Rows, apart: Rows, examples: Examples) -> dict[str, Any]:
    return {
        "sources": len(examples),
        "shape": list(examples.clean.shape[1:]),
        "attacks": list(examples.attacks),
        "numbers": rows.numbers.shape[1],
        "rows fitted": dict(Counter(rows.kinds)),
        "rows held out": dict(Counter(apart.kinds)),
        "noise level": examples.noise_level,
    }


def _learned(measure: Any) -> dict[str, Any]:
    """The fields of a measure that one can read at a glance: single words and numbers."""
    found = {field.name: getattr(measure, field.name) for field in fields(measure) if field.init}
    return {name: value for name, value in found.items() if isinstance(value, bool | int | float | str)}
