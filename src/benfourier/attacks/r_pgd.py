"""Projected gradient descent from a random start (Madry 2018, arXiv:1706.06083): BIM's steps from uniform noise."""

from dataclasses import dataclass
from typing import ClassVar

from benfourier.attacks.bim import Bim, BimFixed


@dataclass(frozen=True)
class RPgd(Bim):
    """R-PGD with the least eps that misleads; noise is drawn anew for every run.

    Args: those of BIM; `step=None` is eps / 30.
    """

    iterations: int = 40
    ratio: ClassVar[float] = 0.01 / 0.3
    random: ClassVar[bool] = True


@dataclass(frozen=True)
class RPgdFixed(BimFixed):
    """R-PGD with a given eps and without an early stop.

    Args: those of BIM; `step=None` is eps / 30.
    """

    iterations: int = 40
    ratio: ClassVar[float] = 0.01 / 0.3
    random: ClassVar[bool] = True
