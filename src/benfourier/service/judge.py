"""What a service asks of whoever judges its images, and a guard in that office."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benfourier.errors import StoreError
from benfourier.guard.answers import answers
from benfourier.guard.guard import Guard
from benfourier.guard.saving import load_guard

SHAPES = 64  # sizes of images whose plans are kept; a network of no fixed size makes one for each


@dataclass(frozen=True, eq=False)
class Judged:
    """What is said of n images.

    Args:
        label: int64 (n,).
        accepted: bool (n,).
        score: float64 (n,); higher is more adversarial.
        numbers: the detector's measure, float64 (n, D).
        threshold: above which a score is rejected.
        version: of the guard that said it.
        guard: that guard; another one may be at work when the answer is told.
    """

    label: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    score: NDArray[np.float64]
    numbers: NDArray[np.float64]
    threshold: float
    version: str
    guard: Guard

    def __len__(self) -> int:
        return len(self.label)

    def rows(self, first: int, count: int) -> "Judged":
        """Returns what is said of some of them."""
        part = slice(first, first + count)
        return replace(
            self,
            label=self.label[part],
            accepted=self.accepted[part],
            score=self.score[part],
            numbers=self.numbers[part],
        )


class Judge(Protocol):
    """Judges images; only one thread ever asks it."""

    @property
    def guard(self) -> Guard:
        """Says what images look like, and on what the threshold was set."""

    @property
    def version(self) -> str:
        """Another one for another guard."""

    def judge(self, images: Sequence[Tensor]) -> Judged:
        """Returns what is said of checked images (C, H, W), in the order given."""


class Origin(Protocol):
    """Where a judge comes from, and whether there is a new one."""

    def load(self) -> Judge:
        """Returns the judge as it is now, ready to judge."""

    def stamp(self) -> object:
        """Returns something that differs when there is a new one."""


class GuardJudge:
    """A guard as a judge: network and detector share one forward pass where the detector only listens."""

    def __init__(self, guard: Guard, version: str) -> None:
        self.guard = guard
        self.version = version
        self._shapes: set[torch.Size] = set()

    def judge(self, images: Sequence[Tensor]) -> Judged:
        """Returns what the guard says of checked images (C, H, W)."""
        self._forget({image.shape for image in images})
        count, guard = len(images), self.guard
        labels, scores, numbers = np.empty(count, np.int64), np.empty(count), np.empty((count, 0))
        for found in answers(guard.detector, images):
            if not numbers.shape[1]:
                numbers = np.empty((count, found.numbers.shape[1]))
            labels[found.places] = found.logits.argmax(1).cpu().numpy()
            scores[found.places] = found.scores.numpy()
            numbers[found.places] = found.numbers.numpy()
        threshold = guard.threshold.value
        return Judged(labels, scores <= threshold, scores, numbers, threshold, self.version, guard)

    def _forget(self, shapes: set[torch.Size]) -> None:
        """Drops the plans of all sizes once there are many, so that strange sizes cannot fill the memory."""
        self._shapes |= shapes
        if len(self._shapes) > SHAPES:
            old = self.guard
            subject = replace(old.subject)
            detector = replace(old.detector, subject=subject)
            self.guard = Guard(subject, detector, false_alarm_rate=old.false_alarm_rate, clean=old.calibration)
            self._shapes = set(shapes)


@dataclass(frozen=True)
class GuardFile:
    """A guard's file and the network it guards.

    Args:
        path: what `Guard.save` wrote.
        module: the network.
        rate: another false-alarm rate than the file's; None for the file's.
    """

    path: Path
    module: nn.Module
    rate: float | None = None

    def load(self) -> GuardJudge:
        """Returns the guard in the file, after a trial image if its size is known, so that no real one need wait."""
        try:
            version = sha256(self.path.read_bytes()).hexdigest()[:12]
        except OSError as error:
            raise StoreError(f"{self.path}: it cannot be opened ({error}); check the name and permissions") from error
        guard = load_guard(self.path, self.module)
        judge = GuardJudge(guard if self.rate is None else guard.rethresholded(self.rate), version)
        shape = shape_of(guard)
        if min(shape) > 0:
            judge.judge([_noise(shape, guard.subject.bounds)])
        return judge

    def stamp(self) -> object:
        """Returns what the file system says of the file; None while there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def shape_of(guard: Guard) -> tuple[int, int, int]:
    """Returns channels, height and width of the images; −1 where any will do."""
    height, width = guard.subject.height_width or (-1, -1)
    return guard.subject.known_channels or -1, height, width


def _noise(shape: tuple[int, int, int], bounds: tuple[float, float]) -> Tensor:
    """An image that no network answers with NaN for being too plain."""
    low, high = bounds
    return low + (high - low) * torch.rand(shape, generator=torch.Generator().manual_seed(0))
