"""Projected gradient descent from a random start (Madry 2018, arXiv:1706.06083): BIM's steps from uniform noise."""

from dataclasses import dataclass
from typing import ClassVar

from benfourier.attacks.attack import register_attack
from benfourier.attacks.bim import Bim, BimFixed


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
