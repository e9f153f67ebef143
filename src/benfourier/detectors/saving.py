"""Detectors on disk: one safetensors file with a manifest, never pickle."""

import platform
from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.detectors.calibration import Sigmoid
from benfourier.detectors.catalogue import METHODS
from benfourier.detectors.classifiers import KINDS
from benfourier.detectors.detector import Detector
from benfourier.detectors.likeness import check_subject, look_of
from benfourier.detectors.method import Method
from benfourier.errors import InputError, OptionError, StoreError, SubjectError
from benfourier.store import artifact
from benfourier.subjects.subject import Subject

KIND = "benfourier-detector"
SCHEMA = 1
LIBRARIES = ("benfourier", "numpy", "safetensors", "scikit-learn", "torch")
NAME = 16  # bytes of an image's name
Arrays = dict[str, NDArray[Any]]


def save(detector: Detector, path: str | PathLike[str]) -> None:
    """Writes a detector to one file, whole or not at all."""
    manifest, arrays = packed(detector)
    artifact.write(path, KIND, SCHEMA, manifest, arrays)


def load(path: str | PathLike[str], subject: Subject) -> Detector:
    """Returns the detector in a file that `save` wrote, or raises StoreError.

    Args:
        path: the file.
        subject: the classifier it was fitted to, with the same weights.
    """
    manifest, arrays = artifact.read(path, KIND, SCHEMA)
    return unpacked(path, manifest, arrays, subject)


def packed(detector: Detector) -> tuple[dict[str, Any], Arrays]:
    """Returns everything that a detector is, as a manifest and arrays."""
    measure, of_measure = _fields(detector.measure, "measure/")
    classifier, of_classifier = _fields(detector.classifier, "classifier/")
    look = look_of(detector.subject)
    if detector.summary.get("weights", look["weights"]) != look["weights"]:
        raise SubjectError("the network's weights have changed since the detector was fitted to it; fit it again")
    manifest = {
        "method": detector.method.name,
        "options": {f.name: getattr(detector.method, f.name) for f in fields(detector.method) if f.compare},
        "measure": measure,
        "final": detector.method.final,
        "classifier": classifier,
        "sigmoid": asdict(detector.sigmoid),
        "summary": dict(detector.summary),
        "subject": look,
        "versions": {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()},
    }
    seen = np.frombuffer(bytes.fromhex("".join(sorted(detector.seen))), np.uint8).reshape(-1, NAME)
    return manifest, {**of_measure, **of_classifier, "seen": seen}


def unpacked(path: str | PathLike[str], manifest: Mapping[str, Any], arrays: Arrays, subject: Subject) -> Detector:
    """Returns the detector of a manifest and arrays, once the subject proves to be the one it was fitted to."""
    try:
        method = _method(path, manifest)
        check_subject(path, manifest, subject)
        kept = {**manifest["measure"], **_tensors(arrays, "measure/")}
        measure = method.restore(subject, kept)
        classifier = KINDS[manifest["final"]](**manifest["classifier"], **_tensors(arrays, "classifier/"))
        seen = frozenset(row.tobytes().hex() for row in arrays["seen"])
        sigmoid = Sigmoid(**manifest["sigmoid"])
        return Detector(method, subject, measure, classifier, sigmoid, manifest["summary"], seen)
    except (AssertionError, AttributeError, InputError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: its manifest and its arrays do not fit ({error}); fit it again") from error


def _method(path: str | PathLike[str], manifest: Mapping[str, Any]) -> Method:
    """The method that a manifest names, with its options."""
    name, options = manifest["method"], manifest["options"]
    if name not in METHODS:
        raise StoreError(
            f"{path}: it holds the method {name!r}, which this version does not know; it knows {', '.join(METHODS)}; "
            "install the version that wrote it, or fit one of these"
        )
    try:
        return METHODS[name](**options)
    except (OptionError, TypeError) as error:
        raise StoreError(f"{path}: {name} has other options in this version ({error}); fit it again") from error


def _fields(record: Any, prefix: str) -> tuple[dict[str, Any], Arrays]:
    """The fields of a record: tensors as arrays, the others as they are."""
    facts: dict[str, Any] = {}
    arrays: Arrays = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Tensor):
            arrays[prefix + field.name] = value.detach().cpu().numpy()
        elif field.init:
            facts[field.name] = value
    return facts, arrays


def _tensors(arrays: Arrays, prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): torch.from_numpy(np.array(array))
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
