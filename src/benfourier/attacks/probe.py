"""One image tried first: how many classes there are, what its gradient costs in memory, and how it should lie there."""

from dataclasses import dataclass

import torch
from torch import Tensor

from benfourier.attacks.quick import AS_GIVEN, Quick, quickest
from benfourier.subjects.hearing import logits_of
from benfourier.subjects.subject import Subject

MEMORY = 512 * 2**20  # bytes that a batch may take
MOST, MOST_ON_CPU = 256, 32  # images at once: more gain no time, and on the CPU they lose some


@dataclass(frozen=True)
class Cost:
    """What one image needs.

    Attributes:
        bytes: that autograd keeps for it.
        classes: width of its logits.
        quick: how the module is quickest.
        most: images at once.
    """

    bytes: int
    classes: int
    quick: Quick = AS_GIVEN
    most: int = MOST


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
    held = sum(kept.values()) + leaf.numel() * leaf.element_size()
    most = MOST_ON_CPU if leaf.device.type == "cpu" else MOST
    return Cost(held, logits.shape[1], quickest(subject, leaf.detach(), logits.detach()), most)


def fitting_batch(cost: Cost) -> int:
    """Returns how many images fit the memory, if each takes twice what is kept for it."""
    return max(1, min(cost.most, MEMORY // (2 * cost.bytes)))
