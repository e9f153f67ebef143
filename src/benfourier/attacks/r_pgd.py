"""Projected gradient descent from a random start (Madry 2018, arXiv:1706.06083): BIM's steps from uniform noise.

`RPgdBeyond` is our own: it goes a set factor beyond the least eps that misleads each image, so that one setting is weak
or strong for any network and any images.
"""

from dataclasses import dataclass
from typing import ClassVar

from benfourier.attacks.attack import register_attack
from benfourier.attacks.bim import Bim, BimFixed
from benfourier.attacks.run import AttackRun
from benfourier.options import number


@register_attack
@dataclass(frozen=True, kw_only=True)
class RPgd(Bim):
    """R-PGD with the least eps that misleads; noise is drawn anew for every run."""

    iterations: int = 40
    id: ClassVar[str] = "r-pgd"
    cost: ClassVar[int] = 2
    ratio: ClassVar[float] = 0.01 / 0.3  # step over eps
    random: ClassVar[bool] = True


@register_attack
@dataclass(frozen=True, kw_only=True)
class RPgdFixed(BimFixed):
    """R-PGD with a given eps and without an early stop."""

    iterations: int = 40
    id: ClassVar[str] = "r-pgd-fixed"
    ratio: ClassVar[float] = 0.01 / 0.3  # step over eps
    random: ClassVar[bool] = True


@register_attack
@dataclass(frozen=True, kw_only=True)
class RPgdBeyond(RPgdFixed):
    """R-PGD with an eps of each image's own: `factor` times the least that BIM finds, up to `eps`."""

    eps: float = number(0.5, above=0)  # the most, a multiple of the width of the bounds
    factor: float = number(2.0, least=1)
    id: ClassVar[str] = "r-pgd-beyond"

    def run(self, run: AttackRun) -> None:
        """Records the last iterate where it is adversarial; the least eps itself is known to a tenth."""
        rows = run.rows
        Bim(tolerance=0.1).run(run)
        least = (run.best[rows] - run.clean[rows]).abs().flatten(1).amax(1) / run.span
        misled = run.squared[rows].isfinite()
        run.forget(rows)
        if not misled.any():
            return
        eps = (self.factor * least[misled]).clamp(max=self.eps)
        self.run_within(run, rows[misled], eps, (self.ratio if self.step is None else self.step / self.eps) * eps)
