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
        descent = Descent(hunt, constants, self.lr)
        for t in range(self.iterations):
            won = descent.step()
            found[descent.rows[won]] = True
            if self.abort_early and t % math.ceil(self.iterations / 10) == 0:
                descent.leave_idle()
            if not len(descent.rows):
                break
        return found[hunt.rows]


class Descent:
    """Adam for the rows of a hunt, each with its own constant."""

    def __init__(self, hunt: Hunt, constants: Tensor, lr: float) -> None:
        self.hunt, self.space, self.lr, self.time = hunt, Tanh(hunt), lr, 0
        self.rows, self.constants = hunt.rows, constants
        self.origin = self.space.enter(hunt.clean[self.rows])
        self.anchor = self.space.leave(self.origin)[0]
        self.change, self.mean, self.square, self.away = (torch.zeros_like(self.origin) for _ in range(4))
        self.before = torch.full_like(constants, torch.inf)  # loss at the last check
        self.leads = constants.new_full((3, len(constants)), torch.nan)  # of the best other class, the last ones first

    def step(self) -> Tensor:
        """Offers the images as they are, then moves them; True where they are successes."""
        images, bend = self.space.leave(self.origin + self.change)
        logits, slope = self._look(images)
        won = self.hunt.misled(logits, self.rows)
        self.hunt.offer(images, self.rows, won)
        self.away = images - self.anchor
        pull = self.constants.view(-1, 1, 1, 1) * slope
        gradient = pull.add_(self.away, alpha=2 / self.hunt.span**2).mul_(bend)
        self.time += 1
        self.mean.lerp_(gradient, 1 - BETA1)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        scale = (self.square / (1 - BETA2**self.time)).sqrt_().add_(EPSILON)
        self.change.addcdiv_(self.mean, scale, value=-self.lr / (1 - BETA1**self.time))
        return won

    def _look(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the hinge's gradient: 0 without a backward pass where another class leads, as was forecast."""
        hunt, (now, before, earlier) = self.hunt, self.leads
        wanted = ~(3 * now - 3 * before + earlier > hunt.confidence)  # the parabola through the last three
        logits, slope = hunt.slope(images, self.rows, self._hinge, wanted, lambda z, y: self._hinge(z, y) == 0)
        self.leads = torch.stack([margins(logits, hunt.labels[self.rows]), now, before])
        return logits, slope

    def _hinge(self, logits: Tensor, labels: Tensor) -> Tensor:
        """max(0, z_y − max z_k + κ), per image."""
        return (self.hunt.confidence - margins(logits, labels)).clamp(min=0)

    def leave_idle(self) -> None:
        """Lets the images go that have made no progress since the last call."""
        far = (self.away / self.hunt.span).square().flatten(1).sum(1)
        loss = far + self.constants * (self.hunt.confidence - self.leads[0]).clamp(min=0)
        left, self.before, self.leads = loss <= PROGRESS * self.before, loss, self.leads.T
        for name in ("rows", "constants", "origin", "anchor", "change", "mean", "square", "before", "leads"):
            setattr(self, name, getattr(self, name)[left])
        self.leads = self.leads.T


class Tanh:
    """The change of variable between images in bounds and all numbers."""

    def __init__(self, hunt: Hunt) -> None:
        self.low, self.high = hunt.low, hunt.high
        self.middle, self.half = (hunt.low + hunt.high) / 2, hunt.span / 2

    def enter(self, images: Tensor) -> Tensor:
        """Returns images as numbers without bounds."""
        return torch.atanh(SHRINK * ((images - self.middle) / self.half).clamp(-1, 1))

    def leave(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Returns numbers as images, and the derivative of these."""
        unit = torch.tanh(numbers)
        return (self.middle + self.half * unit).clamp_(self.low, self.high), self.half * (1 - unit.square())
