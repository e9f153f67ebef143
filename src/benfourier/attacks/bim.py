"""The basic iterative method (Kurakin 2017, arXiv:1607.02533): x ← x + step · sign ∇ cross-entropy, within eps."""

from dataclasses import dataclass
from typing import ClassVar

from benfourier.attacks.descent import fixed
from benfourier.attacks.eps_search import search
from benfourier.attacks.hunt import Hunt


@dataclass(frozen=True)
class Bim:
    """BIM with the least eps that misleads.

    Args:
        eps: to try first, a multiple of the width of the bounds.
        step: at that eps; None for eps / 6. Their ratio is kept.
        iterations: steps of one run at most.
        tolerance: eps is found to this fraction of itself.
        exact: all 20 bisections, whatever the tolerance.
    """

    eps: float = 0.3
    step: float | None = None
    iterations: int = 10
    tolerance: float = 1e-3
    exact: bool = False
    ratio: ClassVar[float] = 0.05 / 0.3  # step over eps
    random: ClassVar[bool] = False
    confidence: ClassVar[float] = 0.0

    def run(self, hunt: Hunt) -> None:
        """Offers what the search finds."""
        ratio = self.ratio if self.step is None else self.step / self.eps
        tolerance = 0.0 if self.exact else self.tolerance
        search(hunt, self.eps, ratio, self.iterations, random=self.random, tolerance=tolerance)


@dataclass(frozen=True)
class BimFixed:
    """BIM with a given eps and without an early stop.

    Args:
        eps: a multiple of the width of the bounds.
        step: None for eps / 6.
        iterations: steps, all of them made.
    """

    eps: float = 0.3
    step: float | None = None
    iterations: int = 10
    ratio: ClassVar[float] = 0.05 / 0.3  # step over eps
    random: ClassVar[bool] = False
    confidence: ClassVar[float] = 0.0

    def run(self, hunt: Hunt) -> None:
        """Offers the last iterate."""
        step = self.ratio * self.eps if self.step is None else self.step
        fixed(hunt, self.eps, step, self.iterations, random=self.random)
