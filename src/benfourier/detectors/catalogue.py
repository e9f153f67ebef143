"""All detectors by id; importing this module registers those of the package."""

from collections.abc import Mapping
from math import prod
from os import PathLike
from typing import Any

import numpy as np
import torch

from benfourier.detectors import (  # noqa: F401  they register
    c1c2,
    feature_squeezing,
    kd_bu,
    lid,
    mahalanobis,
    max_softmax,
    mbf,
    odds,
    second_opinion,
    views,
)
from benfourier.detectors.defense_gan import detector as defense_gan  # noqa: F401
from benfourier.detectors.detector import CONTENT_ID, KIND, SCHEMA, Detector, Sigmoid
from benfourier.detectors.extractor import Concatenated, Extractor
from benfourier.detectors.features import extract_batch
from benfourier.detectors.heads import HEADS
from benfourier.detectors.method import DETECTORS, SHARED, Combined, Method, check_supplied
from benfourier.detectors.state import Arrays, join_state, on_device, record_from_state
from benfourier.errors import ActivationError, ClassifierError, OptionError, StoreError, check_choice, check_whole
from benfourier.models.classifier import Classifier
from benfourier.models.identity import check_same_classifier
from benfourier.options import check_choice_type
from benfourier.store import artifact

MAX_FEATURES, MAX_PIXELS = 2**24, 2**26  # that a file may speak of
MAX_SCORE = 1e100
SUMMARY: Mapping[str, tuple[type, ...]] = {  # what a file may hold in a summary of a fit, beside words and numbers
    "sources": (int,),
    "shape": (list,),
    "attacks": (list,),
    "features": (int,),
    "rows fitted": (dict,),
    "rows held out": (dict,),
    "noise levels": (dict,),
    "weights": (str,),
    "learned": (dict,),
}
UNUSABLE = (  # what contents that no version wrote may raise; an InputError is a ValueError
    *(ActivationError, ArithmeticError, AssertionError, AttributeError, ClassifierError, LookupError, MemoryError),
    *(RuntimeError, TypeError, ValueError),
)


def detector_ids() -> list[str]:
    """Returns the ids of all detectors, each with its variants behind it."""
    return [word for name in DETECTORS for word in (name, *(f"{name}:{part}" for part in DETECTORS[name].variants))]


def make_method(name: str, *, preset: str | None = None, **options: Any) -> Method:
    """Returns the method of an id.

    Args:
        name: id of a detector; of one of its variants, such as "c1c2:c1"; or of several, such as "mbf+lid".
        preset: a named set of options, such as "paper" for mbf; options given beside it win.
        options: of the method; those of a part of "mbf+lid" are called "lid.k".
    """
    check_choice_type("detector", name)
    if "+" in name:
        return _make_combined(name, preset, options)
    check_choice("detector", name, detector_ids())
    return DETECTORS.make(name, options, preset)


def _make_combined(name: str, preset: str | None, options: Mapping[str, Any]) -> Combined:
    """The methods of "mbf+lid", each with its own options."""
    ids = name.split("+")
    if preset is not None:
        problem = f"preset is {preset!r}, and {name} has none"
        raise OptionError(f"{problem}; give options of its parts, such as {ids[0]}.…", "preset")
    own: dict[str, dict[str, Any]] = {part: {} for part in ids}
    shared: dict[str, Any] = {}
    for option, value in options.items():
        part, dot, inner = option.partition(".")
        if option in SHARED:
            shared[option] = value
        elif dot and part in own and inner not in SHARED:
            own[part][inner] = value
        else:
            raise OptionError(
                f"{name} has no option {option!r}; its own are {', '.join(SHARED)}, those of a part are written "
                f"{ids[0]}.<option>",
                option,
            )
    return Combined(parts=tuple(make_method(part, **own[part]) for part in ids), **shared)


def load(path: str | PathLike[str], classifier: Classifier, *, supplied: Mapping[str, Any] | None = None) -> Detector:
    """Returns the detector in a file that `Detector.save` wrote, or raises StoreError.

    Args:
        path: the file.
        classifier: the network it was fitted to, with the same weights.
        supplied: what files cannot hold, by name; most detectors need nothing.
    """
    manifest, arrays = artifact.read(path, KIND, SCHEMA)
    return detector_from_state(path, manifest, arrays, classifier, supplied or {})


def detector_from_state(
    path: str | PathLike[str],
    manifest: Mapping[str, Any],
    arrays: Arrays,
    classifier: Classifier,
    supplied: Mapping[str, Any],
) -> Detector:
    """Returns the detector of a manifest and arrays, once the classifier proves to be the one it was fitted to."""
    method = _method(path, manifest)
    check_supplied(method, supplied)
    try:
        features = check_whole("features", manifest["summary"]["features"], most=MAX_FEATURES)
        _check_summary(manifest["summary"])
        shape = tuple(check_whole("shape", side) for side in manifest["summary"]["shape"])
        if len(shape) != 3 or prod(shape) > MAX_PIXELS:
            raise ValueError(f"images of shape {shape} are not (C, H, W), or larger than {MAX_PIXELS} numbers")
        check_same_classifier(path, manifest["classifier"], shape, classifier)
        extractor = _extractor(method, classifier, join_state(manifest["extractors"], arrays), supplied)
        kind, state = HEADS[manifest["head"]["kind"]], join_state(manifest["head"]["state"], arrays)
        head = record_from_state(kind, state, {"D": features})
        sigmoid = None if manifest["sigmoid"] is None else record_from_state(Sigmoid, manifest["sigmoid"])
        if arrays["seen"].dtype != np.uint8 or arrays["seen"].shape[1:] != (CONTENT_ID,):
            raise ValueError("the content ids of the images that it was fitted to are not usable")
        seen = frozenset(row.tobytes().hex() for row in arrays["seen"])
        detector = Detector(method, classifier, extractor, head, sigmoid, manifest["summary"], seen)
        _try(detector, features, shape)
    except UNUSABLE as error:
        raise StoreError(f"{path}: its manifest and its arrays do not fit ({error}); fit it again") from error
    return detector


def _check_summary(summary: Mapping[str, Any]) -> None:
    """Raises one of UNUSABLE unless a summary holds what `fit` writes into it."""
    for name, value in summary.items():
        if not isinstance(value, SUMMARY.get(name, (str, int, float, type(None)))):
            raise ValueError(f"summary.{name} is {type(value).__name__}")
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not all(isinstance(each, str | int | float | None) for each in inner):
            raise ValueError(f"summary.{name} holds other things than words and numbers")
    if not summary.keys() >= {"sources", "attacks"}:
        raise ValueError("summary.sources or summary.attacks is missing")


def _try(detector: Detector, features: int, shape: tuple[int, ...]) -> None:
    """Raises one of UNUSABLE unless a trial image has a finite score; for expensive features, unless zeros have."""
    rows = torch.zeros(1, features, dtype=torch.float64)
    with torch.no_grad():
        if detector.needs <= {"forward", "passes"}:
            image = detector.classifier.noise(1, shape)
            _, (rows,) = extract_batch(detector.classifier, [detector.extractor], image, [""])
        scores = on_device(detector.head, rows.device).score(rows)
    if rows.shape != (1, features) or scores.shape != (1,) or not abs(float(scores)) < MAX_SCORE:
        raise ValueError(f"a trial gives {rows.shape[1]} features and the scores {scores.tolist()}")


def _method(path: str | PathLike[str], manifest: Mapping[str, Any]) -> Method:
    """The method that a manifest names, with its options."""
    name, options = str(manifest.get("method")), manifest.get("options")
    unknown = [part for part in name.split("+") if part not in DETECTORS]
    if unknown:
        raise StoreError(
            f"{path}: it holds the method {unknown[0]!r}, which this version does not know; it knows "
            f"{', '.join(DETECTORS)}; install the version that wrote it, or fit one of these"
        )
    try:
        return make_method(name, **options)  # type: ignore[arg-type]
    except (OptionError, TypeError) as error:
        raise StoreError(f"{path}: {name} has other options in this version ({error}); fit it again") from error


def _extractor(
    method: Method, classifier: Classifier, leaves: tuple[Mapping[str, Any], ...], supplied: Mapping[str, Any]
) -> Extractor:
    """The extractor of the stored leaves; those of one part of a combined method stand together."""
    parts = []
    for part in method.parts_of_fit():
        kinds = {kind.__name__: kind for kind in part.extractors}
        mine = tuple(
            kinds[leaf["kind"]].from_state(classifier, leaf["state"], supplied)
            for leaf in leaves
            if leaf["method"] == part.id
        )
        if not mine:
            raise ValueError(f"there is no extractor of {part.id}")
        parts.append(mine[0] if len(mine) == 1 else Concatenated(mine))
    return parts[0] if len(parts) == 1 else Concatenated(tuple(parts))
