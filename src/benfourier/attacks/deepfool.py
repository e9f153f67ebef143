"""DeepFool (Moosavi-Dezfooli 2016, arXiv:1511.04599): steps to the nearest boundary of the linearised network.

In the form of Foolbox 1.8: x ← x + 1.05 · |z_k − z_y| / ‖w‖² · w, w = ∇(z_k − z_y), for the nearest of some classes k.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from benfourier.attacks.hunt import Hunt, Value

OVERSHOOT = 1.05
TINY = 1e-8  # added to ‖w‖


@dataclass(frozen=True)
class DeepFool:
    """DeepFool with L2 steps, stopped at the first success.

    Args:
        steps: at most.
        candidates: how many classes, those that score highest on the clean image; its own is one of them.
    """

    steps: int = 100
    candidates: int = 10
    confidence: ClassVar[float] = 0.0

    def run(self, hunt: Hunt) -> None:
        """Offers the first success of each image."""
        rows, images = hunt.rows, hunt.clean[hunt.rows]
        ranked = hunt.logits(images, rows).argsort(dim=1, descending=True)
        others = ranked[:, 1 : self.candidates]  # (rows, classes to move to)
        for step in range(self.steps + 1):
            logits, gradients = hunt.slopes(images, rows, [_lead(column) for column in others.unbind(1)])
            won = hunt.misled(logits, rows)
            hunt.offer(images, rows, won)
            if step == self.steps or won.all():
                return
            images = _stepped(hunt, rows, images, others, logits, gradients)
            rows, images, others = rows[~won], images[~won], others[~won]


def _lead(classes: Tensor) -> Value:
    """By how much each image's class leads its label, negative as long as it does not."""

    def lead(logits: Tensor, labels: Tensor) -> Tensor:
        ahead, own = logits.gather(1, torch.stack([classes, labels], 1)).unbind(1)
        return ahead - own

    return lead


def _stepped(
    hunt: Hunt, rows: Tensor, images: Tensor, others: Tensor, logits: Tensor, gradients: list[Tensor]
) -> Tensor:
    """The images moved past the nearest boundary, clipped to the bounds."""
    own = logits.gather(1, hunt.labels[rows].unsqueeze(1))
    gaps = (logits.gather(1, others) - own).abs().maximum(hunt.slack(logits).unsqueeze(1))  # a tie must not stop it
    slopes = torch.stack(gradients, 1)  # (rows, classes, C, H, W)
    lengths = slopes.flatten(2).norm(dim=2) + TINY
    nearest = (gaps / lengths).argmin(1)
    index = torch.arange(len(rows), device=rows.device)
    factor = OVERSHOOT * (gaps / lengths.square())[index, nearest]
    moved: Tensor = images + factor.view(-1, 1, 1, 1) * slopes[index, nearest]
    return moved.clamp(hunt.low, hunt.high)
