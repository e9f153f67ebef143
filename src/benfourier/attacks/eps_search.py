"""The search for the least eps that misleads, as Foolbox 1.8 made it, every image in a bracket of its own.

A run that fails at eps is tried again at 1.5 eps, 20 tries in all; from the first that succeeds, eps is bisected down
to 0, 20 times. The step keeps its ratio to eps, a run ends at its first success, and the nearest image ever seen stays.
"""

import torch
from torch import Tensor

from benfourier.attacks.descent import climb, cross_entropy
from benfourier.attacks.hunt import Hunt

TRIES = 20  # runs to find a first success, and runs to bisect
GROWTH = 1.5


class Brackets:
    """For each image the eps to try next, the least known to succeed, and the greatest below it known to fail."""

    def __init__(self, count: int, eps: float, tolerance: float) -> None:
        self.eps = torch.full((count,), eps, dtype=torch.float64)
        self.bad = torch.zeros(count, dtype=torch.float64)
        self.good = torch.full((count,), torch.inf, dtype=torch.float64)
        self.tries = torch.zeros(count, dtype=torch.int64)
        self.tolerance = tolerance

    def close(self, over: Tensor, won: Tensor) -> None:
        """Takes in the runs that are over: those that won, and those that did not."""
        growing = self.good.isinf()
        lost = over & ~won
        self.good = torch.where(won, self.eps, self.good)
        self.bad = torch.where(lost & ~growing, self.eps, self.bad)
        self.tries = torch.where(won & growing, 0, self.tries + over.long())
        following = torch.where(self.good.isinf(), GROWTH * self.eps, (self.good + self.bad) / 2)
        self.eps = torch.where(over, following, self.eps)

    def done(self) -> Tensor:
        """True where all runs are made, or where the bracket is narrow enough."""
        narrow = self.good.isfinite() & (self.good - self.bad <= self.tolerance * self.good)
        return narrow | (self.tries >= TRIES)

    def keep(self, left: Tensor) -> None:
        """Lets the other images go."""
        self.eps, self.bad, self.good, self.tries = self.eps[left], self.bad[left], self.good[left], self.tries[left]


def search(hunt: Hunt, eps: float, ratio: float, iterations: int, *, random: bool, tolerance: float) -> None:
    """Offers every first success of every run. An image whose run is over starts its next one at once.

    Args:
        hunt: the images.
        eps: to try first, a multiple of the width of the bounds.
        ratio: step over eps.
        iterations: steps of one run at most.
        random: start at uniform noise around the clean image, drawn anew for every run and not clipped to the bounds.
        tolerance: a bracket is done when it is narrower than this fraction of its upper end.
    """
    rows = hunt.rows
    brackets = Brackets(len(rows), eps, tolerance)
    first = torch.zeros_like(hunt.clean)  # every run without noise begins with this gradient, so it is taken once
    if not random:
        first[rows] = hunt.slope(hunt.clean[rows], rows, cross_entropy)[1]

    def begin(rows: Tensor, eps: Tensor) -> Tensor:
        if random:
            return hunt.clean[rows] + (hunt.span * eps).view(-1, 1, 1, 1) * hunt.uniform(rows)
        return climb(hunt, rows, hunt.clean[rows], first[rows], eps, ratio * eps)

    reach = brackets.eps.to(hunt.clean)
    images, youth = begin(rows, reach), 0 if random else 1
    age = torch.full_like(rows, youth)  # steps made in this run
    while len(rows):
        logits, gradient = hunt.slope(images, rows, cross_entropy, wanted=age < iterations)
        won = hunt.misled(logits, rows) & (age > 0)  # a random start is no result: it may be out of bounds
        hunt.offer(images, rows, won)
        over = won | (age == iterations)
        images = climb(hunt, rows, images, gradient, reach, ratio * reach)
        age += 1
        brackets.close(over.cpu(), won.cpu())
        done = brackets.done()
        if done.any():
            brackets.keep(~done)
            left = ~done.to(rows.device)
            rows, images, age, over = rows[left], images[left], age[left], over[left]
        reach = brackets.eps.to(hunt.clean)
        if over.any():
            images[over], age[over] = begin(rows[over], reach[over]), youth
