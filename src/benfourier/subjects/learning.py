"""A module that learns, epoch by epoch, and images in memory to learn from and to be measured on."""

import math
import time

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benfourier import progress
from benfourier.data.draws import generator, seed_of
from benfourier.data.reading import Batch
from benfourier.errors import InputError, ResponseError, SubjectError
from benfourier.subjects.augmentation import moved
from benfourier.subjects.checkpoint import Epoch
from benfourier.subjects.hearing import logits_of
from benfourier.subjects.recipe import Recipe
from benfourier.subjects.subject import Subject

LEVELS = 255  # 8-bit pixels
MEASURED = 512  # images at once that are only classified
NUMBERS = 2**22  # in all of them, at most; responses of large images take many times their memory


class Lesson:
    """Images in memory, uint8 (N, H, W, C), and labels, for each of which the subject has a logit."""

    def __init__(self, images: Batch, subject: Subject) -> None:
        self.pixels, self.labels = torch.from_numpy(images.pixels), torch.from_numpy(images.labels)
        subject.check(in_bounds(self.pixels[:2], subject))
        first = entering(self.pixels[:2], subject)
        try:
            with torch.no_grad():
                classes = logits_of(subject.module.eval()(first), len(first)).shape[1]
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            shape = tuple(first.shape[1:])
            raise SubjectError(
                f"the module cannot be run on images of shape {shape}: {error}; give images of the size it is made for"
            ) from error
        if int(self.labels.max()) >= classes:
            raise InputError(
                f"label {int(self.labels.max())} is unknown to a network of {classes} classes, 0 to {classes - 1}; "
                "make the network with more classes, or give other images"
            )

    def __len__(self) -> int:
        return len(self.labels)


class Learner:
    """A subject's module with its optimiser.

    Args:
        subject: whose module learns.
        recipe: how.
        lesson: images to learn from.
        exam: images to be measured on.
        stage: names the draws of one of several trainings that follow one another; with the same draws again, a
            network would meet moves and dropout that it knows by heart.
    """

    def __init__(self, subject: Subject, recipe: Recipe, lesson: Lesson, exam: Lesson, stage: str = "") -> None:
        self.subject, self.recipe, self.lesson, self.exam, self.stage = subject, recipe, lesson, exam, stage
        self.module = subject.module
        parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if not parameters or subject.dtype not in (torch.float32, torch.float64):
            raise SubjectError(
                f"the module has {len(parameters)} parameters that learn, the first of all is {subject.dtype}; "
                "there must be some, in float32 or float64"
            )
        self.optimiser = torch.optim.SGD(
            parameters, lr=recipe.rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay, nesterov=True
        )
        self.batch = min(recipe.batch, len(lesson))
        self.steps = len(lesson) // self.batch  # the few images left over are others in each epoch

    def epoch(self, number: int, *, show_progress: bool | None = None) -> Epoch:
        """Returns what one epoch came to; all its draws depend on the seed and its number only."""
        start, seed, label = time.perf_counter(), self.recipe.seed, f"epoch {number}/{self.recipe.epochs}"
        draws = generator(seed, f"{self.stage}epoch {number}")
        devices = [] if self.subject.device.type == "cpu" else [self.subject.device]
        loss, right = 0.0, 0
        with torch.random.fork_rng(devices), progress.bar(self.steps, label, show=show_progress) as advance:
            torch.manual_seed(seed_of(seed, f"{self.stage}dropout {number}"))
            self.module.train()
            order = torch.randperm(len(self.lesson), generator=draws)[: self.steps * self.batch]
            for step, rows in enumerate(order.view(self.steps, self.batch)):
                self._set_rate((number - 1 + step / self.steps) / self.recipe.epochs)
                lost, won = self._step(rows, draws, f"{label}, step {step + 1}")
                loss, right = loss + lost, right + won
                advance(1, f"loss {loss / (step + 1):.3f}, {right / ((step + 1) * self.batch):.1%} right")
        for name, tensor in self.module.state_dict().items():
            self._refuse_nan(bool(tensor.isfinite().all()), f"{name} holds NaN or infinity after {label}")
        accuracy, passed = right / (self.steps * self.batch), self._right(self.exam)
        return Epoch(loss / self.steps, accuracy, passed, len(self.exam), time.perf_counter() - start)

    def _set_rate(self, done: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.rate_at(done)

    def _step(self, rows: Tensor, draws: torch.Generator, place: str) -> tuple[float, int]:
        """Loss and right answers of one batch, from which the module has then learned."""
        recipe, device = self.recipe, self.subject.device
        pixels = moved(self.lesson.pixels[rows], recipe.shift, draws, flips=recipe.flips)
        images, labels = entering(pixels, self.subject), self.lesson.labels[rows].to(device)
        self.optimiser.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.bf16):
            logits = logits_of(self.module(images), len(images))
        loss = F.cross_entropy(logits.to(self.subject.dtype), labels)
        value = loss.item()
        self._refuse_nan(math.isfinite(value), f"the loss became {value} in {place}")
        torch.autograd.backward(loss)
        self.optimiser.step()
        return value, int((logits.argmax(1) == labels).sum())

    def _refuse_nan(self, finite: bool, told: str) -> None:
        if not finite:
            raise ResponseError(
                f"{told}; the greatest rate is {self.recipe.rate:g}: try a lower one, and look at the images' scaling"
            )

    def knows_all(self) -> bool:
        """True if every image learned from is classified correctly, as it is, without moves and dropout."""
        return self._right(self.lesson) == len(self.lesson)

    def _right(self, lesson: Lesson) -> int:
        """How many images are classified correctly, in the module's own precision."""
        self.module.eval()
        right = 0
        with torch.no_grad():
            size = max(1, min(MEASURED, NUMBERS // lesson.pixels[0].numel()))
            for start in range(0, len(lesson), size):
                images = entering(lesson.pixels[start : start + size], self.subject)
                guesses = logits_of(self.module(images), len(images)).argmax(1).cpu()
                right += int((guesses == lesson.labels[start : start + size]).sum())
        return right


def in_bounds(pixels: Tensor, subject: Subject) -> Tensor:
    """Returns 8-bit images (N, H, W, C) as (N, C, H, W) in the subject's bounds, channels last in memory."""
    low, high = subject.bounds
    images = pixels.permute(0, 3, 1, 2).to(subject.device, subject.dtype)
    return (low + (high - low) * (images / LEVELS)).clamp(low, high)


def entering(pixels: Tensor, subject: Subject) -> Tensor:
    """Returns 8-bit images as the module takes them."""
    return subject.normalise(in_bounds(pixels, subject))
