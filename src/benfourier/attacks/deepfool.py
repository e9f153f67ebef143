"""DeepFool (Moosavi-Dezfooli 2016, arXiv:1511.04599): steps to the nearest boundary of the linearised network.

In the form of Foolbox 1.8: x ← x + 1.05 · |z_k − z_y| / ‖w‖² · w, w = ∇(z_k − z_y), for the nearest of some classes k.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from benfourier.attacks.attack import Attack, register_attack
from benfourier.attacks.run import AttackRun
from benfourier.options import whole, word

OVERSHOOT = 1.05
TINY = 1e-8  # added to ‖w‖


@register_attack
@dataclass(frozen=True, kw_only=True)
class DeepFool(Attack):
    """DeepFool with L2 steps, stopped at the first success.

    Where pixels are clipped, steps come nearer and nearer to the boundary until two logits are equal. There
    `ties="nearest"` crosses the boundary by aiming at a small lead; "foolbox" drops the tied class and steps to another
    one, as Foolbox 1.8 does, which ends farther behind the boundary.
    """

    steps: int = whole(100)  # at most
    candidates: int = whole(10, least=2)  # classes that score highest on the clean image; its own is one of them
    ties: str = word("nearest", "foolbox")
    id: ClassVar[str] = "deepfool"

    def run(self, run: AttackRun) -> None:
        """Records the first success of each image."""
        rows, images = run.rows, run.clean[run.rows]
        ranked = run.logits(images, rows).argsort(dim=1, descending=True)
        others = ranked[:, 1 : self.candidates]  # (rows, classes to move to)
        for step in range(self.steps + 1):
            logits, gradients = run.gradients(images, rows, [partial(_lead, column) for column in others.unbind(1)])
            success = run.is_adversarial(logits, rows)
            run.record(images, rows, success)
            if step == self.steps or success.all():
                return
            differences, dropped = self._gaps(run, rows, others, logits)
            slopes = torch.stack(gradients, 1)  # (rows, classes, C, H, W)
            lengths = slopes.flatten(2).norm(dim=2) + TINY
            nearest = (differences / lengths).masked_fill(dropped, torch.inf).argmin(1)
            index = torch.arange(len(images), device=images.device)
            factor = OVERSHOOT * (differences / lengths.square())[index, nearest]
            images = run.clip(images + factor.view(-1, 1, 1, 1) * slopes[index, nearest])
            rows, images, others = rows[~success], images[~success], others[~success]

    def _gaps(self, run: AttackRun, rows: Tensor, others: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """What each class is to gain on the label, and which classes are dropped; both (rows, classes)."""
        labels = run.labels[rows].unsqueeze(1)
        lead = logits.gather(1, others) - logits.gather(1, labels)
        least = run.slack(logits).unsqueeze(1)  # without it a step at a tie would have length 0
        if self.ties == "nearest":
            return lead.abs().maximum(least), torch.zeros_like(lead, dtype=torch.bool)
        # at a tie argmax names the lower class: if that is the other one, Foolbox ends with a success here
        dropped = (lead == 0) & (others > labels)
        return torch.where(lead < 0, -lead, lead.maximum(least)), dropped


def _lead(classes: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """By how much each image's class leads its label, negative as long as it does not."""
    ahead, own = logits.gather(1, torch.stack([classes, labels], 1)).unbind(1)
    return ahead - own
