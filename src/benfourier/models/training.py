"""Training on a source of images: the same call gives the same weights, interrupted or not."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from benfourier import progress
from benfourier.data.images import LabelledImages, UnreadableImage, read
from benfourier.data.seeds import image_generator, image_seed
from benfourier.data.sources import Source
from benfourier.data.splits import split
from benfourier.errors import ActivationError, ClassifierError, InputError, OptionError, check_number, check_whole
from benfourier.metrics.intervals import clopper_pearson
from benfourier.models.checkpoint import Epoch, describe_network, load_checkpoint, save_checkpoint
from benfourier.models.classifier import Classifier
from benfourier.models.device import forked_generators
from benfourier.models.images import from_pixels
from benfourier.models.module import logits_of
from benfourier.options import CheckedOptions, number, switch, whole
from benfourier.store.artifact import FilePath

WARM_UP = 0.3  # share of the steps in which the rate rises
FIRST_RATE = 1 / 25  # of the greatest rate, where it begins
TEST_BATCH = 512  # images at once that are only classified
TEST_NUMBERS = 2**22  # in all of them, at most; activations of large images take many times their memory


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(CheckedOptions):
    """Stochastic gradient descent with Nesterov momentum; the rate rises and falls once (one-cycle, Smith 2018)."""

    epochs: int = whole(14)  # how often each image is seen
    batch: int = whole(128, least=2)  # images per step
    rate: float = number(0.05, above=0)  # the greatest learning rate
    momentum: float = number(0.9, above=0, below=1)
    weight_decay: float = number(5e-4, least=0, below=1)
    shift: int = whole(3, least=0)  # images are moved by up to so many pixels, up or down and left or right
    flips: bool = switch(False)  # half of the images are mirrored
    bf16: bool = switch(False)  # products in bfloat16: faster on CPUs that have it, and gives other weights
    seed: int = whole(0, least=0, most=2**32 - 1)  # of the order of images, their moves, and dropout

    def rate_at(self, done: float) -> float:
        """Returns the learning rate when a share of all steps is done; both arcs are half cosines."""

        def arc(share: float) -> float:
            return (1 - math.cos(math.pi * share)) / 2  # from 0 to 1, flat at both ends

        if done < WARM_UP:
            return self.rate * (FIRST_RATE + (1 - FIRST_RATE) * arc(done / WARM_UP))
        return self.rate * (1 - arc((done - WARM_UP) / (1 - WARM_UP)))


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """Result of a training; the weights are in the classifier's module."""

    options: TrainingOptions
    epochs: tuple[Epoch, ...]
    data: dict[str, str]  # digests of the images learned from, and of those measured on
    unreadable: tuple[UnreadableImage, ...]
    left_out: int = 0  # images to measure on that are among those learned from, and were left out

    @property
    def accuracy(self) -> float:
        """Share of the held-out images that are classified correctly."""
        return self.epochs[-1].correct / self.epochs[-1].images

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper-Pearson interval of the accuracy, 95 %."""
        return clopper_pearson(self.epochs[-1].correct, self.epochs[-1].images)

    @property
    def seconds(self) -> float:
        """Time that all epochs took, also those before an interruption."""
        return sum(epoch.seconds for epoch in self.epochs)

    def metadata(self) -> dict[str, Any]:
        """Returns what a file of weights says about its training, as JSON can hold it."""
        measured = {"accuracy": self.accuracy, "interval": list(self.interval), "images": self.epochs[-1].images}
        measured |= {"left out": self.left_out} if self.left_out else {}
        return {**measured, "seconds": round(self.seconds, 1), **self.data, "recipe": asdict(self.options)}


def train(
    classifier: Classifier,
    source: Source | str,
    test: Source | str | None = None,
    options: TrainingOptions | None = None,
    *,
    held_out: float = 0.1,
    test_limit: int | None = None,
    stop_when_fitted: bool = False,
    stage: str = "",
    checkpoint: FilePath | None = None,
    resume: bool = False,
    report: Callable[[int, Epoch], None] | None = None,
    show_progress: bool | None = None,
) -> TrainingResult:
    """Returns the record of a training, which leaves its weights in the classifier's module.

    Args:
        classifier: whose module learns, from the weights that it has.
        source: images to learn from, or what names them, such as "mnist-5k"; they are all read into memory.
        test: images to measure on, without those among them that it learns from; without it a part of the source is
            held out.
        options: how to train.
        held_out: that part's share.
        test_limit: at most so many of these images are measured on after each epoch; None for all.
        stop_when_fitted: end with the first epoch after which all images learned from are classified correctly.
        stage: gives trainings that follow one another, with one seed, draws of their own.
        checkpoint: a file that is written before the first epoch and after each.
        resume: go on from the checkpoint.
        report: called with the number and the record of each epoch that is done.
        show_progress: True or False to force the bar; by default it is drawn on a terminal.
    """
    options, path = options or TrainingOptions(), None if checkpoint is None else Path(checkpoint)
    if path is None and resume:
        raise OptionError("resume is asked for without a checkpoint; name the file to go on from")
    if path is not None and path.exists() and not resume:
        problem = "this is the checkpoint of a run that has not finished"
        raise OptionError(f"{path}: {problem}; resume it, or delete it to begin anew")
    if test_limit is not None:
        check_whole("test_limit", test_limit)
    source = classifier.open_source(source) if isinstance(source, str) else source
    test = classifier.open_source(test) if isinstance(test, str) else test
    images, test_images, unreadable, left_out = _parts(source, test, held_out, test_limit, options.seed, show_progress)
    test_data = f"{held_out} of it" if test is None else f"{test.name} {test.digest}"
    data = {"data": f"{source.name} {source.digest}", "held out": test_data}
    run = {**describe_network(classifier), **data, **asdict(options)}
    epochs: tuple[Epoch, ...] = ()
    with _training_layout(classifier.module):
        trainer = Trainer(classifier, options, images, test_images, stage)
        if path is not None and resume:
            epochs = load_checkpoint(path, run, classifier.module, trainer.optimiser)
        elif path is not None:  # proves that the place can be written before hours are spent
            save_checkpoint(path, run, epochs, classifier.module, trainer.optimiser)
        try:
            for number in range(len(epochs) + 1, options.epochs + 1):
                if stop_when_fitted and epochs and trainer.count_correct(images) == len(images):
                    break
                epochs = (*epochs, trainer.epoch(number, show_progress=show_progress))
                if path is not None:
                    save_checkpoint(path, run, epochs, classifier.module, trainer.optimiser)
                if report is not None:
                    report(number, epochs[-1])
        except (ActivationError, ClassifierError):
            if path is not None and not epochs:  # nothing was learned that one could go on from
                path.unlink(missing_ok=True)
            raise
    return TrainingResult(options, epochs, data, unreadable, left_out)


def _parts(
    source: Source, test: Source | None, held_out: float, most: int | None, seed: int, show: bool | None
) -> tuple[LabelledImages, LabelledImages, tuple[UnreadableImage, ...], int]:
    """Images to learn from, images to measure on, those that cannot be read, and how many were left out."""
    unreadable: list[UnreadableImage] = []
    if test is not None:
        learned = read(source, None, unreadable, show=show)
        measured = read(test, np.arange(len(test))[:most], unreadable, show=show)
        new = measured.without(learned.content_ids)
    else:
        check_number("held_out", held_out, above=0, below=1)
        rows = split(source.ids, source.labels, {"learn": 1 - held_out, "measure": held_out}, seed=seed)
        learned = read(source, rows["learn"], unreadable, show=show)
        measured = new = read(source, rows["measure"][:most], unreadable, show=show)
    if not len(new):
        raise InputError(f"{source.name}: it holds all images to measure on; give others, or let a part be held out")
    if len(learned) < 2:
        raise InputError(f"{source.name}: there is one image to learn from; give at least two")
    return learned, new, tuple(unreadable), len(measured) - len(new)


@contextmanager
def _training_layout(module: nn.Module) -> Iterator[None]:
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


@dataclass(eq=False)
class Trainer:
    """A classifier's module with its optimiser."""

    classifier: Classifier
    options: TrainingOptions
    images: LabelledImages  # to learn from, uint8 (N, C, H, W)
    test_images: LabelledImages  # to be measured on
    stage: str  # with the draws of an earlier stage a network would meet moves and dropout that it knows by heart

    def __post_init__(self) -> None:
        self.module, options = self.classifier.module, self.options
        for data in (self.images, self.test_images):
            _check_images(data, self.classifier)
        parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if not parameters or self.classifier.dtype not in (torch.float32, torch.float64):
            learning = f"{len(parameters)} parameters that learn"
            problem = f"the module has {learning}, the first of all is {self.classifier.dtype}"
            raise ClassifierError(f"{problem}; there must be some, in float32 or float64")
        self.optimiser = torch.optim.SGD(
            parameters, lr=options.rate, momentum=options.momentum, weight_decay=options.weight_decay, nesterov=True
        )
        self.batch = min(options.batch, len(self.images))
        self.steps = len(self.images) // self.batch  # the few images left over are others in each epoch

    def epoch(self, number: int, *, show_progress: bool | None = None) -> Epoch:
        """Returns the result of one epoch; all its draws depend on the seed and its number only."""
        start, seed, label = time.perf_counter(), self.options.seed, f"epoch {number}/{self.options.epochs}"
        draws = image_generator(seed, f"{self.stage}epoch {number}")
        loss, correct = 0.0, 0
        with forked_generators(self.classifier.device), progress.bar(self.steps, label, show=show_progress) as advance:
            torch.manual_seed(image_seed(seed, f"{self.stage}dropout {number}"))
            self.module.train()
            order = torch.randperm(len(self.images), generator=draws)[: self.steps * self.batch]
            for step, rows in enumerate(order.view(self.steps, self.batch)):
                for group in self.optimiser.param_groups:
                    group["lr"] = self.options.rate_at((number - 1 + step / self.steps) / self.options.epochs)
                step_loss, step_correct = self._step(rows, draws, f"{label}, step {step + 1}")
                loss, correct = loss + step_loss, correct + step_correct
                advance(1, f"loss {loss / (step + 1):.3f}, {correct / ((step + 1) * self.batch):.1%} correct")
        for name, tensor in self.module.state_dict().items():
            self._refuse_nan(bool(tensor.isfinite().all()), f"{name} holds NaN or infinity after {label}")
        accuracy, test_correct = correct / (self.steps * self.batch), self.count_correct(self.test_images)
        return Epoch(loss / self.steps, accuracy, test_correct, len(self.test_images), time.perf_counter() - start)

    def _step(self, rows: Tensor, draws: torch.Generator, place: str) -> tuple[float, int]:
        """Loss and correct answers of one batch, from which the module has then learned."""
        options, classifier = self.options, self.classifier
        pixels = augment(self.images.images.permute(0, 2, 3, 1)[rows], options.shift, draws, flips=options.flips)
        pixels = pixels.permute(0, 3, 1, 2)  # (N, C, H, W), channels last in memory
        images = _prepare(pixels, classifier)
        labels = self.images.labels[rows].to(classifier.device)
        self.optimiser.zero_grad()
        with torch.autocast(classifier.device.type, torch.bfloat16, enabled=options.bf16):
            logits = logits_of(self.module(images), len(images))
        loss = F.cross_entropy(logits.to(classifier.dtype), labels)
        value = loss.item()
        self._refuse_nan(math.isfinite(value), f"the loss became {value} in {place}")
        torch.autograd.backward(loss)
        self.optimiser.step()
        return value, int((logits.argmax(1) == labels).sum())

    def _refuse_nan(self, finite: bool, message: str) -> None:
        if not finite:
            advice = "try a lower one, and check the images' scaling"
            raise ActivationError(f"{message}; the greatest rate is {self.options.rate:g}: {advice}")

    def count_correct(self, data: LabelledImages) -> int:
        """Returns how many images are classified correctly as they are, in the module's own precision."""
        self.module.eval()
        size = max(1, min(TEST_BATCH, TEST_NUMBERS // data.images[0].numel()))
        correct = 0
        with torch.no_grad():
            for pixels, labels in zip(torch.split(data.images, size), torch.split(data.labels, size), strict=True):
                images = _prepare(pixels, self.classifier)
                correct += int((logits_of(self.module(images), len(images)).argmax(1).cpu() == labels).sum())
        return correct


def augment(pixels: Tensor, shift: int, generator: torch.Generator, *, flips: bool) -> Tensor:
    """Returns images (N, H, W, C) moved by up to shift pixels both ways, and mirrored in half the cases with flips.

    Pixels at the border are repeated where nothing comes in. All is one gather of bytes: a hundredth of a step's time.
    """
    count, height, width, _ = pixels.shape
    down, right = torch.randint(-shift, shift + 1, (2, count, 1, 1), generator=generator)
    rows = (torch.arange(height).view(1, height, 1) + down).clamp(0, height - 1)
    columns = (torch.arange(width).view(1, 1, width) + right).clamp(0, width - 1)
    if flips:
        mirrored = torch.rand(count, 1, 1, generator=generator) < 0.5
        columns = torch.where(mirrored, width - 1 - columns, columns)
    result = pixels[torch.arange(count).view(count, 1, 1), rows, columns]
    assert result.shape == pixels.shape
    return result


def _check_images(data: LabelledImages, classifier: Classifier) -> None:
    """Raises an error unless the module can be run on the images and has a logit for each label."""
    first = from_pixels(data.images[:2], classifier)
    classifier.check_images(first)
    try:
        with torch.no_grad():
            classes = classifier.logits(first).shape[1]
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        problem = f"the module cannot be run on images of shape {tuple(first.shape[1:])}: {error}"
        raise ClassifierError(f"{problem}; give images of the size it is made for") from error
    if int(data.labels.max()) >= classes:
        problem = f"label {int(data.labels.max())} is unknown to a network of {classes} classes, 0 to {classes - 1}"
        raise InputError(f"{problem}; make the network with more classes, or give other images")


def _prepare(pixels: Tensor, classifier: Classifier) -> Tensor:
    """8-bit images as they enter the module."""
    return classifier.normalise(from_pixels(pixels.to(classifier.device), classifier, classifier.dtype))
