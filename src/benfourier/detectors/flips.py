"""How many gradient steps an image's label withstands, many images at a time."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benfourier.errors import SubjectError
from benfourier.subjects.hearing import logits_of, undisturbed
from benfourier.subjects.subject import Subject

MEMORY = 512 * 2**20  # bytes that a batch and its gradient may take
MOST = 256  # images at once: more gain no time


@dataclass(frozen=True)
class Push:
    """Steps along the raw gradient of the cross-entropy, within an L∞ ball around the image.

    Args:
        sign: 1 towards a goal, −1 away from it.
        step: times the gradient; like the radius for pixels from 0 to 1, whatever the subject's bounds.
        radius: of the ball.
        cap: steps after which an image is given up.
    """

    sign: int
    step: float
    radius: float
    cap: int


def logits(subject: Subject, images: Tensor) -> Tensor:
    """Returns the logits (N, classes) of images that may lie beyond the bounds; gradients flow to the images."""
    plan = subject.plan(tuple(images.shape[1:]))
    entering = subject.normalise(images).clone(memory_format=plan.memory_format)  # the module may write into them
    return logits_of(subject.module(entering), len(images))


def flips(subject: Subject, images: Tensor, labels: Tensor, goals: Tensor, push: Push) -> Tensor:
    """Returns the number of steps (N,) after which each label changes, or the cap where it does not.

    An image leaves the batch as soon as its label has changed, and the next one takes its place.

    Args:
        subject: the classifier.
        images: (N, C, H, W), on its device, in its dtype.
        labels: (N,), its answers to them.
        goals: (N,), the class that each is pushed to, or away from.
        push: how.
    """
    assert labels.shape == goals.shape == (len(images),)
    low, high = subject.bounds
    reach, rate = push.radius * (high - low), push.sign * push.step * (high - low) ** 2
    size = _batch(subject, images)
    taken = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    waiting = torch.arange(len(images), device=images.device)
    rows, moved = waiting[:0], images[:0]
    with undisturbed(subject.module):
        while len(rows) or len(waiting):
            free = size - len(rows)
            rows, moved = torch.cat([rows, waiting[:free]]), torch.cat([moved, images[waiting[:free]]])
            waiting = waiting[free:]
            found, slope = _slope(subject, moved, goals[rows])
            # on the boundary another batch may see another label; one step is the least there is
            flipped = (found != labels[rows]) & (taken[rows] > 0)
            first = images[rows]
            ahead = (moved - rate * slope).clamp(low, high).clamp(first - reach, first + reach)
            taken[rows[~flipped]] += 1
            still = (ahead == moved).flatten(1).all(1)  # it would stand there for ever
            taken[rows[still & ~flipped]] = push.cap
            stay = ~flipped & (taken[rows] < push.cap)
            rows, moved = rows[stay], ahead[stay]
    return taken


def _slope(subject: Subject, images: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
    """The labels (N,), and the gradient (N, C, H, W) of each image's cross-entropy with its goal."""
    with torch.enable_grad():
        leaf = images.detach().clone().requires_grad_()
        found = logits(subject, leaf)
        if not found.requires_grad:
            raise SubjectError(
                "the module's logits have no gradient; c1c2 needs a module that works in floating tensors "
                "from images to logits, without detach or no_grad; or take c1c2:c1, which needs none"
            )
        loss = F.cross_entropy(found, goals, reduction="sum")
        return found.detach().argmax(1), torch.autograd.grad(loss, leaf)[0]


def _batch(subject: Subject, images: Tensor) -> int:
    """Images whose responses, and as much again for the gradient, fit the memory."""
    plan = subject.plan(tuple(images.shape[1:]))
    entries = math.prod(images.shape[1:]) + sum(layer.entries for layer in plan.layers)
    return max(1, min(MOST, MEMORY // (2 * entries * subject.dtype.itemsize)))
