"""The L2 attack of Carlini and Wagner (2017, arXiv:1608.04644): least ‖x' − x‖² + c · max(0, z_y − max z_k + κ).

In the form of Foolbox 1.8: x' = tanh in the bounds, Adam, and a search for the least c of every image.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from benfourier.attacks.attack import Attack, register_attack
from benfourier.attacks.run import AttackRun, margins
from benfourier.options import number, switch, whole

SHRINK = 0.999999  # keeps the inverse of tanh finite at the bounds
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-7  # of Adam
PROGRESS = 0.9999  # a loss above this fraction of the one a tenth of the iterations ago is no progress


@register_attack
@dataclass(frozen=True, kw_only=True)
class CwL2(Attack):
    """CW-L2: c grows tenfold until one succeeds, then it is bisected."""

    confidence: float = number(0.0, least=0)  # κ; above 0 margins must be at least κ, at 0 any lead counts
    search_steps: int = whole(5)  # values of c that are tried
    iterations: int = whole(1000)  # of Adam, for each c
    lr: float = number(0.005, above=0)  # Adam's learning rate
    initial_constant: float = number(0.01, above=0)  # the first c
    abort_early: bool = switch(True)  # stop Adam for images that make no progress in a tenth of the iterations
    id: ClassVar[str] = "cw-l2"
    cost: ClassVar[int] = 3

    @property
    def margin(self) -> float:
        """The confidence κ."""
        return self.confidence

    def run(self, run: AttackRun) -> None:
        """Records every success of every descent."""
        constants = run.clean.new_full((len(run.rows),), self.initial_constant)
        lower, upper = torch.zeros_like(constants), torch.full_like(constants, torch.inf)
        for _ in range(self.search_steps):
            success = self._descend(run, constants)
            upper = torch.where(success, constants, upper)
            lower = torch.where(success, lower, constants)
            constants = torch.where(upper.isinf(), 10 * constants, (lower + upper) / 2)

    def _descend(self, run: AttackRun, constants: Tensor) -> Tensor:
        """True for the rows of the run in which one descent with their constant succeeds."""
        success = torch.zeros(len(run.clean), dtype=torch.bool, device=run.clean.device)
        descent = Descent(run, constants, self.lr)
        for t in range(self.iterations):
            adversarial = descent.step()
            success[descent.rows[adversarial]] = True
            if self.abort_early and t % math.ceil(self.iterations / 10) == 0:
                descent.drop_idle()
            if not len(descent.rows):
                break
        return success[run.rows]


class Descent:
    """Adam for the rows of a run, each with its own constant; images are tanh of numbers without bounds."""

    def __init__(self, run: AttackRun, constants: Tensor, lr: float) -> None:
        self.run, self.lr, self.time = run, lr, 0
        self.middle, self.half = (run.low + run.high) / 2, run.span / 2
        self.rows, self.constants = run.rows, constants
        self.origin = torch.atanh(SHRINK * ((run.clean[self.rows] - self.middle) / self.half).clamp(-1, 1))
        self.anchor = self._to_images(self.origin)[0]
        self.change, self.mean, self.square = (torch.zeros_like(self.origin) for _ in range(3))
        self.loss = torch.zeros_like(constants)
        self.last_loss = torch.full_like(constants, torch.inf)  # at the last check of progress

    def step(self) -> Tensor:
        """Records the images as they are, then moves them; True where they are adversarial."""
        run = self.run
        images, derivative = self._to_images(self.origin + self.change)
        logits, gradient = run.gradient(images, self.rows, self._hinge)
        adversarial = run.is_adversarial(logits, self.rows)
        run.record(images, self.rows, adversarial)
        added = images - self.anchor
        squared = (added / run.span).square().flatten(1).sum(1)
        self.loss = squared + self.constants * self._hinge(logits, run.labels[self.rows])
        gradient = self.constants.view(-1, 1, 1, 1) * gradient
        gradient.add_(added, alpha=2 / run.span**2).mul_(derivative)
        self.time += 1
        self.mean.lerp_(gradient, 1 - BETA1)
        self.square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        scale = (self.square / (1 - BETA2**self.time)).sqrt_().add_(EPSILON)
        self.change.addcdiv_(self.mean, scale, value=-self.lr / (1 - BETA1**self.time))
        return adversarial

    def _to_images(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Images in bounds, and their derivative."""
        unit = torch.tanh(numbers)
        return self.run.clip(self.middle + self.half * unit), self.half * (1 - unit.square())

    def _hinge(self, logits: Tensor, labels: Tensor) -> Tensor:
        """max(0, z_y − max z_k + κ), per image."""
        return (self.run.margin - margins(logits, labels)).clamp(min=0)

    def drop_idle(self) -> None:
        """Drops the images that have made no progress since the last call."""
        left, self.last_loss = self.loss <= PROGRESS * self.last_loss, self.loss
        for name in ("rows", "constants", "origin", "anchor", "change", "mean", "square", "last_loss"):
            setattr(self, name, getattr(self, name)[left])
