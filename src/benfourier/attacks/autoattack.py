"""AutoAttack (Croce & Hein 2020, arXiv:2003.01690): APGD, targeted APGD and FAB, Square; the door to pyautoattack."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from benfourier.attacks.guest import Guest, optional, play
from benfourier.attacks.hunt import Hunt
from benfourier.errors import SubjectError

LEAST_CLASSES = 4  # its loss compares the four highest logits


@dataclass(frozen=True)
class AutoAttack:
    """AutoAttack within a given eps; every image by itself, since it draws at random.

    Args:
        eps: a multiple of the width of the bounds.
        norm: "Linf" or "L2".
        version: "standard", "plus" or "rand".
    """

    eps: float = 8 / 255
    norm: str = "Linf"
    version: str = "standard"
    confidence: ClassVar[float] = 0.0

    def run(self, hunt: Hunt) -> None:
        """Offers what the four attacks find."""
        with optional("autoattack"):
            import pyautoattack
        classes = hunt.logits(hunt.clean[hunt.rows], hunt.rows).shape[1]
        if classes < LEAST_CLASSES:
            raise SubjectError(
                f"the subject has {classes} classes; autoattack needs {LEAST_CLASSES}: use r-pgd-fixed instead"
            )

        def strike(network: Guest, images: Tensor, labels: Tensor, seed: int) -> Tensor:
            four = pyautoattack.AutoAttack(
                network, eps=self.eps, norm=self.norm, version=self.version, seed=seed, device=images.device
            )
            for targeted in (four.apgd_targeted, four.fab):
                targeted.n_target_classes = min(targeted.n_target_classes, classes - 1)
            found: Tensor = four.run_standard_evaluation(images, labels, batch_size=len(images))[0]
            return found

        with _quiet():
            play(hunt, strike, alone=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences remarks about success rates, meaningless for one image, and gives a debugger its trace back."""
    logger, trace = logging.getLogger("auto-attack"), sys.gettrace()
    was = logger.disabled
    try:
        logger.disabled = True
        yield
    finally:
        logger.disabled = was
        sys.settrace(trace)
