"""One image tried first: how many classes there are, and what its gradient costs in memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from benfourier.subjects.hearing import logits_of
from benfourier.subjects.subject import Subject

MEMORY = 512 * 2**20  # bytes that a batch may take
MOST = 256  # images at once: more gain no time


@dataclass(frozen=True)
class Cost:
    """What one image needs: bytes that autograd keeps for it, and the width of its logits."""

    bytes: int
    classes: int


def probe(subject: Subject, image: Tensor) -> Cost:
    """Returns the cost of one image (1, C, H, W), by a forward pass that notes what is kept for the backward pass."""
    own = {p.data_ptr() for p in subject.module.parameters()} | {b.data_ptr() for b in subject.module.buffers()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    leaf = image.to(subject.device, subject.dtype).clone().requires_grad_()
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        logits = logits_of(subject.module(subject.normalise(leaf).clone()), 1)
    return Cost(sum(kept.values()) + leaf.numel() * leaf.element_size(), logits.shape[1])


def fitting_batch(cost: Cost) -> int:
    """Returns how many images fit the memory, if each takes twice what is kept for it."""
    return max(1, min(MOST, MEMORY // (2 * cost.bytes)))
