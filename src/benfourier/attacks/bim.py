"""The basic iterative method (Kurakin 2017, arXiv:1607.02533): x ← x + step · sign ∇ cross-entropy, within eps.

`BimFixed` makes one run with a given eps, as Foolbox 3 does. `Bim` searches for the least eps that misleads, as Foolbox
1.8 does: a run that fails at eps is tried again at 1.5 eps, 20 tries in all; from the first success on, eps is bisected
down to 0, 20 times. The step keeps its ratio to eps, a run ends at its first success, and the nearest image of all runs
stays. Every image has a bracket of its own, and starts its next run at once when one is over.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from benfourier.attacks.attack import Attack, register_attack
from benfourier.attacks.run import AttackRun, cross_entropy
from benfourier.options import number, whole

TRIES = 20  # runs to find a first success, and runs to bisect
GROWTH = 1.5


@register_attack
@dataclass(frozen=True, kw_only=True)
class BimFixed(Attack):
    """BIM with a given eps and without an early stop."""

    eps: float = number(0.3, above=0)  # a multiple of the width of the bounds
    step: float | None = number(None, None, above=0)  # None for `ratio` times eps
    iterations: int = whole(10)  # steps of one run
    id: ClassVar[str] = "bim-fixed"
    ratio: ClassVar[float] = 0.05 / 0.3  # step over eps
    random: ClassVar[bool] = False  # start at uniform noise around the clean image, drawn anew for every run

    def run(self, run: AttackRun) -> None:
        """Records the last iterate where it is adversarial; a random start is clipped to the bounds."""
        step = self.ratio * self.eps if self.step is None else self.step
        self.run_within(run, run.rows, *(run.clean.new_full((len(run.rows),), value) for value in (self.eps, step)))

    def run_within(self, run: AttackRun, rows: Tensor, eps: Tensor, steps: Tensor) -> None:
        """Makes the run of some rows, each with an eps and a step of its own, (rows,)."""
        images = run.clean[rows]
        if self.random:
            images = run.clip(images + (run.span * eps).view(-1, 1, 1, 1) * run.uniform(rows))
        for _ in range(self.iterations):
            _, gradient = run.gradient(images, rows, cross_entropy)
            images = _sign_step(run, rows, images, gradient, eps, steps)
        run.record(images, rows, run.is_adversarial(run.logits(images, rows), rows))


@register_attack
@dataclass(frozen=True, kw_only=True)
class Bim(BimFixed):
    """BIM with the least eps that misleads; `eps` and `step` are those of the first run."""

    tolerance: float = number(1e-3, least=0, below=1)  # eps is known to this fraction of itself; 0: all bisections
    id: ClassVar[str] = "bim"

    def run(self, run: AttackRun) -> None:
        """Records the first success of every run; a random start is not clipped."""
        ratio = self.ratio if self.step is None else self.step / self.eps
        rows = run.rows
        brackets = Brackets(len(rows), self.eps, self.tolerance)
        first = torch.zeros_like(run.clean)  # every run without noise begins with this gradient, so it is computed once
        if not self.random:
            first[rows] = run.gradient(run.clean[rows], rows, cross_entropy)[1]

        def start(rows: Tensor, eps: Tensor) -> Tensor:
            if self.random:
                return run.clean[rows] + (run.span * eps).view(-1, 1, 1, 1) * run.uniform(rows)
            return _sign_step(run, rows, run.clean[rows], first[rows], eps, ratio * eps)

        radii = brackets.eps.to(run.clean)
        images, start_age = start(rows, radii), 0 if self.random else 1
        age = torch.full_like(rows, start_age)  # steps of the present run
        while len(rows):
            logits, gradient = run.gradient(images, rows, cross_entropy, needed=age < self.iterations)
            success = run.is_adversarial(logits, rows) & (age > 0)  # a random start may be out of bounds
            run.record(images, rows, success)
            over = success | (age == self.iterations)
            images = _sign_step(run, rows, images, gradient, radii, ratio * radii)
            age += 1
            done = brackets.update(over.cpu(), success.cpu())
            if done.any():
                brackets.select(~done)
                left = ~done.to(rows.device)
                rows, images, age, over = rows[left], images[left], age[left], over[left]
            radii = brackets.eps.to(run.clean)
            if over.any():
                images[over], age[over] = start(rows[over], radii[over]), start_age


class Brackets:
    """For each image the eps to try next, the least known to succeed, and the greatest below it known to fail.

    All are float64 on the CPU: 20 bisections in float32 would reach its last bits.
    """

    def __init__(self, count: int, eps: float, tolerance: float) -> None:
        self.eps = torch.full((count,), eps, dtype=torch.float64)
        self.failing = torch.zeros(count, dtype=torch.float64)
        self.succeeding = torch.full((count,), torch.inf, dtype=torch.float64)
        self.tries = torch.zeros(count, dtype=torch.int64)
        self.tolerance = tolerance

    def update(self, over: Tensor, success: Tensor) -> Tensor:
        """Narrows the brackets by the runs that are over; True where tries are used up or a bracket is narrow."""
        growing = self.succeeding.isinf()
        self.succeeding = torch.where(success, self.eps, self.succeeding)
        self.failing = torch.where(over & ~success & ~growing, self.eps, self.failing)
        self.tries = torch.where(success & growing, 0, self.tries + over.long())
        middle = (self.succeeding + self.failing) / 2
        self.eps = torch.where(over, torch.where(self.succeeding.isinf(), GROWTH * self.eps, middle), self.eps)
        width = self.succeeding - self.failing
        narrow = self.succeeding.isfinite() & (width <= self.tolerance * self.succeeding)
        return narrow | (self.tries >= TRIES)

    def select(self, rows: Tensor) -> None:
        """Drops all other images."""
        for name in ("eps", "failing", "succeeding", "tries"):
            setattr(self, name, getattr(self, name)[rows])


def _sign_step(run: AttackRun, rows: Tensor, images: Tensor, gradient: Tensor, eps: Tensor, step: Tensor) -> Tensor:
    """Returns images one step further, within eps of the clean ones and within bounds; eps and step are (rows,)."""
    assert eps.shape == step.shape == (len(rows),)
    clean, wide = run.clean[rows], (-1, 1, 1, 1)
    radius = (run.span * eps).view(wide)
    images = images + (run.span * step).view(wide) * gradient.sign()
    return run.clip(clean + (images - clean).clamp(-radius, radius))
