"""A subject behind a detector."""

from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, InitVar, dataclass, field
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from benfourier import progress
from benfourier.detectors.detector import Detector
from benfourier.detectors.threshold import Threshold, check_enough, threshold_at
from benfourier.errors import InputError, check_whole
from benfourier.guard.answers import Images, answers, checked
from benfourier.guard.calibration import Calibration, calibrate
from benfourier.guard.verdicts import Verdict, Verdicts
from benfourier.subjects.subject import Subject

if TYPE_CHECKING:
    from benfourier.guard.stand_in import StandIn


@dataclass(frozen=True, eq=False, repr=False)
class Guard:
    """Gives labels to images that a detector accepts, and rejects the others.

    Args:
        subject: the classifier to guard.
        detector: fitted to that subject.
        false_alarm_rate: share of clean images that may be rejected; n clean images allow 1 / (n + 1) at least.
        clean: held-out clean images, none of which the detector was fitted with; or what is known of them already,
            another guard's `calibration`.
        show_progress: True or False to force the bar; None draws it on a terminal.

    Attributes:
        calibration: what the detector says of the held-out clean images.
        threshold: above which score an image is rejected, with its false alarms and their interval.
    """

    subject: Subject
    detector: Detector
    _: KW_ONLY
    false_alarm_rate: float = 0.05
    clean: InitVar[Images | Calibration]
    show_progress: InitVar[bool | None] = None
    calibration: Calibration = field(init=False)
    threshold: Threshold = field(init=False)

    def __post_init__(self, clean: Images | Calibration, show_progress: bool | None) -> None:
        if self.detector.subject is not self.subject:
            raise InputError("the detector was fitted to another subject; pass the one it was fitted to")
        if not isinstance(clean, Calibration):
            images = checked(self.subject, clean)
            check_enough(self.false_alarm_rate, len(images))
            clean = calibrate(self.detector, images, show_progress)
        object.__setattr__(self, "calibration", clean)
        object.__setattr__(self, "threshold", threshold_at(self.false_alarm_rate, clean.scores))

    def __repr__(self) -> str:
        return f"Guard({self.detector!r}, threshold {self.threshold})"

    def check(self, images: Images, *, batch: int | None = None, show_progress: bool | None = None) -> Verdicts:
        """Returns label, accepted, score and threshold of each image, in the order given.

        A detector that only listens shares the network's forward pass.

        Args:
            images: floating, within the subject's bounds: (N, C, H, W), one image (C, H, W), or several of any sizes
                that the network takes.
            batch: images at once; by default as many as fit the memory.
            show_progress: True or False to force the bar; None draws it on a terminal.
        """
        return self._judged(checked(self.subject, images), batch, show_progress)

    def stream(self, images: Iterable[Tensor], *, batch: int = 16) -> Iterator[Verdict]:
        """Returns an iterator over one verdict per image, in order; no more than batch images are taken ahead.

        Args:
            images: each a floating tensor (C, H, W) within the subject's bounds, of any size that the network takes.
            batch: images at once.
        """
        size, coming = check_whole("batch", batch), iter(images)

        def verdicts() -> Iterator[Verdict]:
            done = 0
            while taken := list(islice(coming, size)):
                yield from self._judged(checked(self.subject, taken, first=done), size, show_progress=False)
                done += len(taken)

        return verdicts()

    def rethresholded(self, false_alarm_rate: float) -> "Guard":
        """Returns a guard with another false-alarm rate, from the scores that are known; nothing is fitted again."""
        return Guard(self.subject, self.detector, false_alarm_rate=false_alarm_rate, clean=self.calibration)

    def module(self) -> "StandIn":
        """Returns a module that can stand where the network stood, with one more logit that marks rejection."""
        from benfourier.guard.stand_in import StandIn

        return StandIn(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the guard, without the network, to one file, whole or not at all; `benfourier.load_guard` reads it."""
        from benfourier.guard.saving import save_guard

        save_guard(self, path)

    def _judged(self, images: list[Tensor], batch: int | None, show_progress: bool | None) -> Verdicts:
        labels, scores = np.empty(len(images), np.int64), np.empty(len(images))
        with progress.bar(len(images), "checked", show=show_progress) as advance:
            for found in answers(self.detector, images, batch=batch):
                labels[found.places] = found.logits.argmax(1).cpu().numpy()
                scores[found.places] = found.scores.numpy()
                advance(len(found.places))
        classes = None if self.subject.classes is None else tuple(self.subject.classes)
        return Verdicts(labels, scores <= self.threshold.value, scores, self.threshold.value, classes)
