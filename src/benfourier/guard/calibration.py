"""What a detector says of held-out clean images."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier import progress
from benfourier.data.draws import names_by_content
from benfourier.detectors.detector import Detector
from benfourier.errors import InputError
from benfourier.guard.answers import answers

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores and numbers of n held-out clean images.

    Args:
        scores: (n,).
        mean: of each of the detector's numbers, (D,).
        deviation: standard deviation of each, (D,).
    """

    scores: Floats
    mean: Floats
    deviation: Floats


def calibrate(detector: Detector, clean: list[Tensor], show_progress: bool | None = None) -> Calibration:
    """Returns what a detector says of clean images, none of which it was fitted with.

    Args:
        detector: whose threshold is to be set.
        clean: checked images (C, H, W).
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    _check_unseen(detector, clean)
    scores, numbers = torch.empty(len(clean), dtype=torch.float64), []
    with progress.bar(len(clean), "calibration", show=show_progress) as advance:
        for found in answers(detector, clean):
            scores[found.places] = found.scores
            numbers.append(found.numbers)
            advance(len(found.places))
    deviation, mean = torch.std_mean(torch.cat(numbers), dim=0, correction=0)
    return Calibration(scores.numpy(), mean.numpy(), deviation.numpy())


def _check_unseen(detector: Detector, clean: list[Tensor]) -> None:
    """Raises InputError if an image took part in the fit: its score would be lower than that of a new one."""
    seen = [place for place, image in enumerate(clean) if names_by_content(image.unsqueeze(0))[0] in detector.seen]
    if seen:
        raise InputError(
            f"{len(seen)} of {len(clean)} clean images, the first in place {seen[0]}, were used to fit the detector; "
            "the threshold needs images that it has not seen: hold some out"
        )
