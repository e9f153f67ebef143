"""Training of a subject's network on a source of images: the same call gives the same weights, interrupted or not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benfourier.data.reading import Batch, Refusal, read
from benfourier.data.source import Source
from benfourier.data.splits import split
from benfourier.errors import BenfourierError, InputError, OptionError, check_whole
from benfourier.store.digest import digest_of
from benfourier.subjects.checkpoint import Epoch, load_checkpoint, refuse_unfinished, save_checkpoint
from benfourier.subjects.learning import Learner, Lesson
from benfourier.subjects.recipe import Recipe
from benfourier.subjects.subject import Subject
from benfourier.subjects.weights import tensors_of
from benfourier.theory.rates import clopper_pearson


@dataclass(frozen=True, eq=False)
class Training:
    """What a training came to; the weights are in the subject's module.

    Attributes:
        recipe: how it was trained.
        epochs: one record per epoch.
        data: digests of the images learned from, and of those measured on.
        refusals: images that could not be read.
        left_out: images to measure on that are among those learned from, and were left out.
    """

    recipe: Recipe
    epochs: tuple[Epoch, ...]
    data: dict[str, str]
    refusals: tuple[Refusal, ...]
    left_out: int = 0

    @property
    def accuracy(self) -> float:
        """Share of the held-out images that are classified correctly."""
        return self.epochs[-1].right / self.epochs[-1].images

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson interval of the accuracy, 95 %."""
        return clopper_pearson(self.epochs[-1].right, self.epochs[-1].images)

    @property
    def seconds(self) -> float:
        """Time that all epochs took, also those before an interruption."""
        return sum(epoch.seconds for epoch in self.epochs)

    def facts(self) -> dict[str, Any]:
        """Returns what a file of weights should tell about its making, as JSON can hold it."""
        measured = {"accuracy": self.accuracy, "interval": list(self.interval), "images": self.epochs[-1].images}
        measured |= {"left out": self.left_out} if self.left_out else {}
        return {**measured, "seconds": round(self.seconds, 1), **self.data, "recipe": asdict(self.recipe)}


def train(
    subject: Subject,
    source: Source,
    test: Source | None = None,
    recipe: Recipe | None = None,
    *,
    held_out: float = 0.1,
    measured: int | None = None,
    until_right: bool = False,
    stage: str = "",
    checkpoint: str | PathLike[str] | None = None,
    resume: bool = False,
    report: Callable[[int, Epoch], None] | None = None,
    show_progress: bool | None = None,
) -> Training:
    """Returns the record of a training, which leaves its weights in the subject's module.

    Args:
        subject: whose module learns, from the weights that it has.
        source: images to learn from; they are all read into memory.
        test: images to measure on, without those among them that it learns from; without it a part of the source is
            held out.
        recipe: how to train.
        held_out: that part's share.
        measured: at most so many of these images are measured on after each epoch; None for all.
        until_right: end with the first epoch after which all images learned from are classified correctly.
        stage: gives trainings that follow one another, with one seed, draws of their own.
        checkpoint: a file that is written before the first epoch and after each.
        resume: go on from the checkpoint.
        report: called with the number and the record of each epoch that is done.
        show_progress: True or False to force the bar; by default it is drawn on a terminal.
    """
    recipe, path = recipe or Recipe(), None if checkpoint is None else Path(checkpoint)
    if path is None and resume:
        raise OptionError("resume is asked for without a checkpoint; name the file to go on from")
    if path is not None and not resume:
        refuse_unfinished(path)
    if measured is not None:
        check_whole("measured", measured)
    lesson, exam, refusals, left_out = _parts(source, test, held_out, measured, recipe.seed, show_progress)
    data = _data(source, test, held_out)
    run = {"network": _network(subject), "images": _look(subject), **data, **asdict(recipe)}
    epochs: tuple[Epoch, ...] = ()
    with _awake(subject.module):
        learner = Learner(subject, recipe, Lesson(lesson, subject), Lesson(exam, subject), stage)
        if path is not None and resume:
            epochs = load_checkpoint(path, run, subject.module, learner.optimiser)
        elif path is not None:  # proves that the place can be written before hours are spent
            save_checkpoint(path, run, epochs, subject.module, learner.optimiser)
        try:
            for number in range(len(epochs) + 1, recipe.epochs + 1):
                if until_right and epochs and learner.knows_all():
                    break
                epochs = (*epochs, learner.epoch(number, show_progress=show_progress))
                if path is not None:
                    save_checkpoint(path, run, epochs, subject.module, learner.optimiser)
                if report is not None:
                    report(number, epochs[-1])
        except BenfourierError:
            if path is not None and not epochs:  # nothing was learned that one could go on from
                path.unlink(missing_ok=True)
            raise
    return Training(recipe, epochs, data, refusals, left_out)


def _parts(
    source: Source, test: Source | None, held_out: float, most: int | None, seed: int, show: bool | None
) -> tuple[Batch, Batch, tuple[Refusal, ...], int]:
    """Images to learn from, images to measure on, those that cannot be read, and how many were left out."""
    if test is not None:
        learned, measured = read(source, show=show), read(test, np.arange(len(test))[:most], show=show)
        known = {image.tobytes() for image in learned.images.pixels}
        new = [row for row, image in enumerate(measured.images.pixels) if image.tobytes() not in known]
    else:
        if not 0 < held_out < 1:
            raise OptionError(f"held_out is {held_out!r}; it must be between 0 and 1, such as 0.1")
        rows = split(source.ids, source.labels, {"learn": 1 - held_out, "measure": held_out}, seed=seed)
        learned, measured = (read(source, part, show=show) for part in (rows["learn"], rows["measure"][:most]))
        new = list(range(len(measured.images)))
    if not new:
        raise InputError(f"{source.name}: it holds all images to measure on; give others, or let a part be held out")
    if len(learned.images) < 2:
        raise InputError(f"{source.name}: there is one image to learn from; give at least two")
    left_out = len(measured.images) - len(new)
    return learned.images, measured.images.take(new), (*learned.refusals, *measured.refusals), left_out


def _network(subject: Subject) -> str:
    """A network as it is before it has learned anything."""
    shapes = [f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors_of(subject.module).items()]
    mark = digest_of((*shapes, repr(subject.module)))[:12]
    count = sum(parameter.numel() for parameter in subject.module.parameters())
    return f"{type(subject.module).__name__} with {count:,} parameters ({mark})"


def _look(subject: Subject) -> str:
    return f"bounds {subject.bounds}, mean {subject.mean}, std {subject.std}"


def _data(source: Source, test: Source | None, held_out: float) -> dict[str, str]:
    held = f"{held_out} of it" if test is None else f"{test.name} {test.digest}"
    return {"data": f"{source.name} {source.digest}", "held out": held}


@contextmanager
def _awake(module: nn.Module) -> Iterator[None]:
    """Lays the module out channels-last while the block runs; then row by row, in its old modes, without gradients."""
    modes = {part: part.training for part in module.modules()}
    try:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        module.zero_grad()
        for part, mode in modes.items():
            part.training = mode
