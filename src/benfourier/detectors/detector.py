"""A method fitted to a subject: images in, scores out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier import progress
from benfourier.data.draws import names_by_content
from benfourier.detectors.calibration import Sigmoid
from benfourier.detectors.classifiers import Classifier
from benfourier.detectors.listening import finite, listen
from benfourier.detectors.method import Listening, Measure, Method
from benfourier.errors import InputError, check_whole
from benfourier.subjects.features import MEMORY, fitting_batch
from benfourier.subjects.subject import Subject

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Detector:
    """A fitted detector. A higher score is more adversarial.

    Args:
        method: the options it was fitted with.
        subject: the classifier it listens to.
        measure: what the method has learned; turns images into numbers.
        classifier: turns numbers into a score.
        sigmoid: turns a score into a posterior.
        summary: what is to be known of the fit, as JSON can hold it.
        seen: benign images that took part in the fit, named by their pixels; a threshold needs others.
    """

    method: Method
    subject: Subject
    measure: Measure
    classifier: Classifier
    sigmoid: Sigmoid
    summary: Mapping[str, Any]
    seen: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Detector({self.method!r}, fitted to {self.summary.get('sources')} source images)"

    @property
    def needs(self) -> frozenset[str]:
        """What scoring needs: what the method may need, or only to listen if that is all this fit came to."""
        return frozenset({"listens"}) if isinstance(self.measure, Listening) else self.method.needs

    def score(
        self,
        images: Tensor,
        *,
        ids: Sequence[str] | None = None,
        batch: int | None = None,
        show_progress: bool | None = None,
    ) -> Floats:
        """Returns one score per image, (N,).

        Args:
            images: floating tensor (N, C, H, W) within the subject's bounds.
            ids: source image of each, so that those the detector was fitted with are not compared with themselves.
            batch: images at once; by default as many as fit the memory.
            show_progress: True or False to force the bar; None draws it on a terminal.
        """
        return score_many([self], images, ids=ids, batch=batch, show_progress=show_progress)[0]

    def posterior(self, images: Tensor, **options: Any) -> Floats:
        """Returns P(adversarial) of each image, (N,); options are those of `score`."""
        return self.sigmoid.posterior(self.score(images, **options))

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the detector to one file, whole or not at all; `benfourier.load` reads it."""
        from benfourier.detectors.saving import save

        save(self, path)


def score_many(
    detectors: Sequence[Detector],
    images: Tensor,
    *,
    ids: Sequence[str] | None = None,
    batch: int | None = None,
    show_progress: bool | None = None,
) -> list[Floats]:
    """Returns the scores of several detectors of one subject; those that only listen share one forward pass."""
    subject = _one_subject(detectors)
    subject.check(images)
    names = _names(ids, images)
    measures = [detector.measure for detector in detectors]
    label = ", ".join(detector.method.name for detector in detectors)
    found = numbers_of(subject, measures, images, names, batch=batch, label=label, show_progress=show_progress)
    return [detector.classifier.score(numbers).numpy() for detector, numbers in zip(detectors, found, strict=True)]


def numbers_of(
    subject: Subject,
    measures: Sequence[Measure],
    images: Tensor,
    ids: Sequence[str],
    *,
    batch: int | None = None,
    label: str = "scores",
    show_progress: bool | None = None,
) -> list[Tensor]:
    """Returns each measure's numbers (N, D), batch by batch; those that only listen share one forward pass."""
    size = check_whole("batch", batch) if batch is not None else _fitting(subject, images)
    found: list[list[Tensor]] = [[] for _ in measures]
    with progress.bar(len(images), label, show=show_progress) as advance, torch.no_grad():
        for start in range(0, len(images), size):
            part, names = images[start : start + size], ids[start : start + size]
            for column, numbers in zip(found, _numbers(subject, measures, part, names), strict=True):
                column.append(numbers)
            advance(len(part))
    return [torch.cat(column) for column in found]


def _numbers(subject: Subject, measures: Sequence[Measure], images: Tensor, ids: Sequence[str]) -> list[Tensor]:
    """Each measure's numbers of one batch."""
    listening = [measure for measure in measures if isinstance(measure, Listening)]
    heard = iter(listen(subject, images, listening, ids)[1] if listening else [])
    return [
        next(heard) if isinstance(measure, Listening) else finite(measure.work(subject, images, ids), ids)
        for measure in measures
    ]


def _fitting(subject: Subject, images: Tensor) -> int:
    return fitting_batch(subject.plan(tuple(images.shape[1:])), MEMORY, subject.dtype.itemsize)


def _one_subject(detectors: Sequence[Detector]) -> Subject:
    if not detectors or any(detector.subject is not detectors[0].subject for detector in detectors):
        raise InputError("detectors must be at least one, all fitted to the same subject")
    return detectors[0].subject


def _names(ids: Sequence[str] | None, images: Tensor) -> Sequence[str]:
    if ids is None:
        return names_by_content(images)
    if isinstance(ids, str) or len(ids) != len(images):
        raise InputError(f"there are {len(images)} images and {len(ids)} ids; each image needs one id")
    return list(ids)
