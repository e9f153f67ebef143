"""What the soft-max layer says of images: the posteriors, and their MBF numbers."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.subjects.features import MEMORY, batch_features, fitting_batch
from benfourier.subjects.hearing import SOFTMAX, soft_max
from benfourier.subjects.selection import select
from benfourier.subjects.subject import Subject

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Heard:
    """Posteriors (N, classes) and |â_n| of each image's posteriors (N, orders)."""

    posteriors: Floats
    magnitudes: Floats


def hear_softmax(subject: Subject, images: Tensor, orders: int) -> Heard:
    """Returns what the soft-max layer says of images, both from one forward pass, in float64."""
    subject.check(images)
    plan = subject.plan(tuple(images.shape[1:]))
    last = select(plan.layers, SOFTMAX, pass_through=False)
    posteriors, magnitudes = [], []
    with torch.inference_mode():
        for part in torch.split(images, fitting_batch(plan, MEMORY, subject.dtype.itemsize)):
            logits, numbers = batch_features(subject, plan, part, last, orders)
            posteriors.append(soft_max(logits).cpu())
            magnitudes.append(numbers.cpu().double())
    return Heard(torch.cat(posteriors).numpy(), torch.cat(magnitudes).numpy())
