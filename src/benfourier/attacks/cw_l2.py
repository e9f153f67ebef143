"""The L2 attack of Carlini and Wagner (2017, arXiv:1608.04644): least ‖x' − x‖² + c · max(0, z_y − max z_k + κ).

In the form of Foolbox 1.8: x' = tanh in the bounds, Adam, and a search for the least c of every image.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from benfourier.attacks.hunt import Hunt, margins

SHRINK = 0.999999  # keeps the inverse of tanh finite at the bounds
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-7  # of Adam
PROGRESS = 0.9999  # a loss above this fraction of the one a tenth of the iterations ago is no progress


@dataclass(frozen=True)
class CwL2:
    """CW-L2.

    Args:
        confidence: κ. Above 0 only images whose margin is at least κ count; at 0 every misclassified one does.
        search_steps: values of c that are tried, ten times the last until one succeeds, then by bisection.
        iterations: of Adam, for each c.
        lr: Adam's learning rate.
        initial_constant: the first c.
        abort_early: stop Adam for an image that makes no progress in a tenth of the iterations.
    """

    confidence: float = 0.0
    search_steps: int = 5
    iterations: int = 1000
    lr: float = 0.005
    initial_constant: float = 0.01
    abort_early: bool = True

    def run(self, hunt: Hunt) -> None:
        """Offers every success of every descent."""
        constants = hunt.clean.new_full((len(hunt.rows),), self.initial_constant)
        lower, upper = torch.zeros_like(constants), torch.full_like(constants, torch.inf)
        for _ in range(self.search_steps):
            found = self._descend(hunt, constants)
            upper = torch.where(found, constants, upper)
            lower = torch.where(found, lower, constants)
            constants = torch.where(upper.isinf(), 10 * constants, (lower + upper) / 2)

    def _descend(self, hunt: Hunt, constants: Tensor) -> Tensor:
        """True for the rows of the hunt for which one descent with their constant finds a success."""
        found = torch.zeros(len(hunt.clean), dtype=torch.bool, device=hunt.clean.device)
        space = Tanh(hunt)
        rows, origin = hunt.rows, space.enter(hunt.clean[hunt.rows])
        anchor = space.leave(origin)
        change, mean, square = (torch.zeros_like(origin) for _ in range(3))
        before = torch.full_like(constants, torch.inf)  # loss at the last check
        for t in range(self.iterations):
            images = space.leave(origin + change)
            logits, slope = hunt.slope(images, rows, lambda z, y: constants * self._hinge(z, y))  # noqa: B023
            won = hunt.misled(logits, rows)
            hunt.offer(images, rows, won)
            found[rows[won]] = True
            away = (images - anchor) / hunt.span**2
            gradient = (slope + 2 * away) * space.slope(origin + change)
            mean = BETA1 * mean + (1 - BETA1) * gradient
            square = BETA2 * square + (1 - BETA2) * gradient.square()
            scale = (square / (1 - BETA2 ** (t + 1))).sqrt() + EPSILON
            change = change - self.lr * mean / (1 - BETA1 ** (t + 1)) / scale
            if self.abort_early and t % math.ceil(self.iterations / 10) == 0:
                loss = (away * (images - anchor)).flatten(1).sum(1) + constants * self._hinge(logits, hunt.labels[rows])
                left = loss <= PROGRESS * before
                rows, constants, before = rows[left], constants[left], loss[left]
                origin, anchor, change = origin[left], anchor[left], change[left]
                mean, square = mean[left], square[left]
            if not len(rows):
                break
        return found[hunt.rows]

    def _hinge(self, logits: Tensor, labels: Tensor) -> Tensor:
        """max(0, z_y − max z_k + κ), per image."""
        return (self.confidence - margins(logits, labels)).clamp(min=0)


class Tanh:
    """The change of variable between images in bounds and all numbers."""

    def __init__(self, hunt: Hunt) -> None:
        self.low, self.high = hunt.low, hunt.high
        self.middle, self.half = (hunt.low + hunt.high) / 2, hunt.span / 2

    def enter(self, images: Tensor) -> Tensor:
        """Returns images as numbers without bounds."""
        return torch.atanh(SHRINK * ((images - self.middle) / self.half).clamp(-1, 1))

    def leave(self, numbers: Tensor) -> Tensor:
        """Returns numbers as images."""
        return (self.middle + self.half * torch.tanh(numbers)).clamp(self.low, self.high)

    def slope(self, numbers: Tensor) -> Tensor:
        """Returns the derivative of the images."""
        return self.half * (1 - torch.tanh(numbers).square())
