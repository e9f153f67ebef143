"""How every method is fitted: split, learn the extractor, extract features, fit the head, calibrate."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from benfourier import progress
from benfourier.data.examples import Examples
from benfourier.data.images import LabelledImages, content_ids
from benfourier.data.splits import split
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.detector import Detector, fit_sigmoid
from benfourier.detectors.extractor import Extractor
from benfourier.detectors.feature_cache import FeatureCache, feature_table
from benfourier.detectors.features import has_adversarial_twin
from benfourier.detectors.heads import HEADS, fit_head
from benfourier.detectors.method import FitData, Method, check_supplied
from benfourier.detectors.state import State
from benfourier.errors import FitError, InputError, OptionError
from benfourier.models.classifier import Classifier, check_classifier
from benfourier.models.forward import leave_out_unsteady_layers
from benfourier.models.weights import weights_digest
from benfourier.store.vocabulary import MIN_SOURCES

CALIBRATE = 0.2  # share of the source images that the head does not see: 16 of 80


def fit(
    method: Method | str,
    classifier: Classifier,
    examples: Examples,
    *,
    clean: LabelledImages | None = None,
    preset: str | None = None,
    cache: FeatureCache | None = None,
    work_dir: str | PathLike[str] | None = None,
    supplied: Mapping[str, Any] | None = None,
    other_weights: bool = False,
    show_progress: bool | None = None,
    **options: Any,
) -> Detector:
    """Returns the detector that a method makes of examples; the method stays as it is.

    A fifth of the source images is held out for the posterior and the far field; the rest fits everything else.

    Args:
        method: id of a detector, or a method with its options.
        classifier: the network to guard.
        examples: clean images with their noisy and adversarial twins.
        clean: labelled clean images beyond the examples, for methods that use them.
        preset: a named set of options, with an id.
        cache: features that are known already; every image of the examples must be in its pool.
        work_dir: folder for what fits share, such as a trained generator.
        supplied: what neither options nor files can hold, by name; most methods need nothing.
        other_weights: the examples may have been made with other weights than the classifier's.
        show_progress: True or False to force progress bars; None draws them on a terminal.
        options: of the method, with an id.
    """
    start = time.perf_counter()
    chosen = _chosen(method, preset, options)
    check_classifier(classifier)
    weights = weights_digest(classifier.module)
    if not other_weights and examples.options.get("weights", weights) != weights:
        raise InputError(
            "these examples were made with other weights than the classifier's, and may not mislead it; load the "
            "weights that they were made with, or make examples with these (other_weights=True, or --other-weights, "
            "takes them as they are)"
        )
    check_supplied(chosen, supplied or {})
    _check(chosen, classifier, examples, clean)
    every = [part.images.images for part in examples.parts()] + ([] if clean is None else [clean.images])
    leave_out_unsteady_layers(classifier, every, show_progress=show_progress)
    fitted, held_out = _split(chosen, examples)
    distinct = None if clean is None else with_distinct_ids(clean, examples)
    folder = None if work_dir is None else Path(work_dir)
    data = FitData(fitted, distinct, folder, show_progress, cache, supplied or {})
    extractor = chosen.fit_extractor(classifier, data)
    table = feature_table(classifier, extractor, fitted, chosen.name, show_progress, cache)
    apart = feature_table(classifier, extractor, held_out, chosen.name, show_progress, cache)
    with progress.spinner(f"{chosen.name}: head, {len(table)} rows", show=show_progress):
        head, facts = fit_head(chosen.head_options, table, apart)
    calibrated = bool(apart.adversarial.any())
    sigmoid = fit_sigmoid(head.score(apart.features).numpy(), apart.adversarial) if calibrated else None
    summary = {
        "sources": len(examples),
        "shape": list(examples.clean.shape[1:]),
        "attacks": list(examples.attacks),
        "features": table.features.shape[1],
        "rows fitted": dict(Counter(table.kinds)),
        "rows held out": dict(Counter(apart.kinds)),
        "noise levels": dict(examples.noise_levels),
        **facts,
        "weights": weights,
        "learned": _learned(extractor),
        "seconds": round(time.perf_counter() - start, 3),
    }
    benign = [part.images.images for part in examples.parts() if not part.adversarial]
    benign += [] if clean is None else [clean.images]
    seen = frozenset(name for images in benign for name in content_ids(images))
    return Detector(chosen, classifier, extractor, head, sigmoid, summary, seen)


def _chosen(method: Method | str, preset: str | None, options: Mapping[str, Any]) -> Method:
    if isinstance(method, str):
        return make_method(method, preset=preset, **options)
    if not isinstance(method, Method):
        raise OptionError(f"method is {method!r}; it must be the id of a detector, or a method such as MBF()")
    if preset is not None or options:
        first = next(iter(options), "preset")
        raise OptionError(f"{first} is given beside {method!r}; give options to the method itself, or pass its id")
    return method


def _check(method: Method, classifier: Classifier, examples: Examples, clean: LabelledImages | None) -> None:
    for part in examples.parts():
        classifier.check_images(part.images.images)
    if len(examples) < MIN_SOURCES:
        raise FitError(f"there are {len(examples)} source images; fitting needs at least {MIN_SOURCES}")
    if clean is not None:
        classifier.check_images(clean.images)
    if clean is None and method.clean_images == "required":
        raise InputError(f"{method.name} learns from clean images beyond the examples; pass clean=LabelledImages(...)")
    if clean is not None and method.clean_images == "none":
        raise InputError(f"{method.name} does not use clean images beyond the examples; leave clean out")
    if clean is not None and method.clean_images == "optional" and method.rules == "paper":
        raise InputError(
            f"the paper's rules give {method.name} no images beyond the examples; leave clean out, or set "
            "rules='authors'"
        )


def _split(method: Method, examples: Examples) -> tuple[Examples, Examples]:
    """The examples to fit on and those to calibrate with; sources without any success are spread over both."""
    attacked = has_adversarial_twin(examples)
    count, kind = int(attacked.sum()), method.head_options.kind
    if count < 2 and HEADS[kind].needs_adversarial:
        raise FitError(
            f"{count} source images have an adversarial twin; fitting head {kind!r} needs at least 2: attack more "
            f"images, or set {method.without_attacks}, which is fitted to clean images alone"
        )
    classes = attacked.long() if min(count, len(examples) - count) >= 2 else attacked.long() * 0
    shares = {"fit": 1 - CALIBRATE, "calibrate": CALIBRATE}
    parts = split(examples.ids, classes.numpy(), shares, seed=method.seed)
    return examples.take(parts["fit"], "fit"), examples.take(parts["calibrate"], "calibrate")


def with_distinct_ids(clean: LabelledImages, examples: Examples) -> LabelledImages:
    """Returns clean images whose id equals an example's only if they are the same image."""
    # Ids are "0", "1" and so on unless a caller gives others, so an equal id alone says nothing: taken for an example's
    # source, another image would be left out of its comparisons.
    sources = dict(zip(examples.ids, content_ids(examples.clean), strict=True))
    known, ids = {*sources, *clean.ids}, []
    for name, content in zip(clean.ids, clean.content_ids, strict=True):
        if sources.get(name, content) != content:
            while name in known:
                name = f"clean/{name}"
            known.add(name)
        ids.append(name)
    return LabelledImages(clean.images, clean.labels, tuple(ids))


def _learned(extractor: Extractor) -> dict[str, Any]:
    """Single words and numbers of a learned state; the class of the leaf is named if there are several."""
    leaves = extractor.leaves()
    return {
        f"{type(leaf).__name__} {place}: {name}" if len(leaves) > 1 else name: value
        for place, leaf in enumerate(leaves, 1)
        for name, value in _single_values(leaf.state())
    }


def _single_values(state: State) -> Iterator[tuple[str, Any]]:
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield from _single_values(dict(value))
        elif isinstance(value, bool | int | float | str):
            yield name, value
