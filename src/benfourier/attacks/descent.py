"""Steps along the sign of the gradient, kept within eps of the clean image: what BIM and PGD share."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from benfourier.attacks.hunt import Hunt


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the cross-entropy of each image to its label, which the attacks raise."""
    return F.cross_entropy(logits, labels, reduction="none")


def climb(hunt: Hunt, rows: Tensor, images: Tensor, gradient: Tensor, eps: Tensor, step: Tensor) -> Tensor:
    """Returns images one step further, within eps of the clean ones and within bounds; eps and step are per row."""
    assert eps.shape == step.shape == (len(rows),)
    clean, wide = hunt.clean[rows], (-1, 1, 1, 1)
    reach = (hunt.span * eps).view(wide)
    moved = images + (hunt.span * step).view(wide) * gradient.sign()
    return (clean + (moved - clean).clamp(-reach, reach)).clamp(hunt.low, hunt.high)


def fixed(hunt: Hunt, eps: float, step: float, iterations: int, *, random: bool) -> None:
    """Offers the last iterate of one run with the given eps, as Foolbox 3 does; a random start is clipped."""
    rows = hunt.rows
    reach, stride = (hunt.clean.new_full((len(rows),), value) for value in (eps, step))
    images = hunt.clean[rows]
    if random:
        images = (images + hunt.span * eps * hunt.uniform(rows)).clamp(hunt.low, hunt.high)
    for _ in range(iterations):
        _, gradient = hunt.slope(images, rows, cross_entropy)
        images = climb(hunt, rows, images, gradient, reach, stride)
    hunt.offer(images, rows, hunt.misled(hunt.logits(images, rows), rows))
