"""A network whose logits are the pixels of its images."""

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.data.examples import Examples

CLASSES = 10


def logit_classifier() -> bf.Classifier:
    head = nn.Linear(CLASSES, CLASSES)
    with torch.no_grad():
        head.weight.copy_(torch.eye(CLASSES))
        head.bias.zero_()
    module = nn.Sequential(OrderedDict(flat=nn.Flatten(), head=head))
    return bf.Classifier(module, bounds=(-60.0, 60.0), size=(1, CLASSES), channels=1)


def images_of(logits: np.ndarray) -> Tensor:
    return torch.from_numpy(logits.astype(np.float32)).view(-1, 1, 1, CLASSES)


def logit_examples(
    clean: np.ndarray, noisy: np.ndarray, attacked: Mapping[str, np.ndarray], *, name: str = "image", succeeded: int = 0
) -> Examples:
    """Examples whose logits are given; the attacks fail on the first rows unless all succeeded."""
    rows = len(clean)
    success = torch.arange(rows) >= (rows - succeeded if succeeded else 0)
    return Examples(
        clean=images_of(clean),
        noisy={"noisy": images_of(noisy)},
        adversarial={attack: images_of(logits) for attack, logits in attacked.items()},
        success=dict.fromkeys(attacked, success),
        labels=torch.from_numpy(clean.argmax(1)),
        ids=tuple(f"{name}-{row}" for row in range(rows)),
        noise_levels={"noisy": 0.1},
        counts=(("made", rows),),
        seed=0,
    )


def random_logits(rows: int, seed: int, scale: float = 1.0) -> np.ndarray:
    """Logits of a normal law."""
    return np.random.default_rng(seed).normal(0, scale, size=(rows, CLASSES)).clip(-50, 50)
