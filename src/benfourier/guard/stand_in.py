"""A guard as a module, for places where the network stood."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from benfourier.guard.answers import answers, checked

if TYPE_CHECKING:
    from benfourier.guard.guard import Guard


class StandIn(nn.Module):
    """Images (N, C, H, W) within the subject's bounds in, logits (N, classes + 1) out, without gradients.

    The last column marks rejection. Accepted rows hold the network's logits and −∞ there; rejected rows hold 0 there
    and −∞ everywhere else. So the largest logit tells, and a soft-max gives a rejected row to the last class whole.

    Args:
        guard: whose verdicts these are.
    """

    def __init__(self, guard: "Guard") -> None:
        super().__init__()
        self.network = guard.subject.module
        self._guard = guard

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits."""
        guard = self._guard
        rows: list[Tensor] = []
        places: list[int] = []
        for found in answers(guard.detector, checked(guard.subject, images)):
            accepted = (found.scores <= guard.threshold.value).to(found.logits.device).unsqueeze(1)
            mark = torch.where(accepted, -torch.inf, 0.0).to(found.logits.dtype)
            rows.append(torch.cat([found.logits.masked_fill(~accepted, -torch.inf), mark], dim=1))
            places += found.places
        return torch.cat(rows)[torch.tensor(places).argsort()]  # those of one size were answered together
