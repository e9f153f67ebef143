"""AutoAttack (Croce & Hein 2020, arXiv:2003.01690): APGD, targeted APGD and FAB, Square; run by pyautoattack."""

import logging
import sys
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from benfourier.attacks.attack import Attack, register_attack
from benfourier.attacks.foreign import ForeignModel, run_foreign
from benfourier.attacks.run import AttackRun
from benfourier.errors import ClassifierError, optional_import
from benfourier.options import number, whole, word

ATTACKS = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")
LEAST_CLASSES = 4  # its loss compares the four highest logits


@register_attack
@dataclass(frozen=True, kw_only=True)
class AutoAttack(Attack):
    """AutoAttack within a given eps; every image by itself, since it draws at random."""

    eps: float = number(8 / 255, above=0)  # a multiple of the width of the bounds
    norm: str = word("Linf", "L2")
    version: str = word("standard", "plus", "rand")
    only: str | None = word(None, *ATTACKS)  # one of its attacks instead of those of the version
    queries: int = whole(5000)  # of Square
    id: ClassVar[str] = "autoattack"
    library: ClassVar[str] = "pyautoattack"
    cost: ClassVar[int] = 3

    def run(self, run: AttackRun) -> None:
        """Records what the four attacks find."""
        with optional_import("autoattack is run by pyautoattack", "autoattack"):
            import pyautoattack
        classes = run.logits(run.clean[run.rows], run.rows).shape[1]
        if classes < LEAST_CLASSES:
            raise ClassifierError(
                f"the classifier has {classes} classes; autoattack needs {LEAST_CLASSES}: use r-pgd-fixed instead"
            )

        def run_all_four(model: ForeignModel, images: Tensor, labels: Tensor, seed: int) -> Tensor:
            version = {"version": "custom", "attacks": [self.only]} if self.only else {"version": self.version}
            four = pyautoattack.AutoAttack(
                model, eps=self.eps, norm=self.norm, seed=seed, device=images.device, **version
            )
            four.square.n_queries = self.queries
            for targeted in (four.apgd_targeted, four.fab):
                targeted.n_target_classes = min(targeted.n_target_classes, classes - 1)
            adversarial: Tensor = four.run_standard_evaluation(images, labels, batch_size=len(images))[0]
            return adversarial

        # its log of success rates is meaningless for one image, and it removes the trace function
        logger, trace = logging.getLogger("auto-attack"), sys.gettrace()
        disabled, logger.disabled = logger.disabled, True
        try:
            run_foreign(run, run_all_four, random=True)
        finally:
            logger.disabled = disabled
            sys.settrace(trace)
