"""Evidence: the features of an image, layer by layer, beside those of clean images."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MAX_DEVIATIONS = 1e6  # a feature that never varies would be infinitely many deviations away


@dataclass(frozen=True, eq=False)
class LayerEvidence:
    """The features of one layer, of one image."""

    layer: str  # its name; the detector's name if its features do not belong to layers
    values: Floats  # of the image
    mean: Floats  # of held-out clean images
    deviation: Floats  # standard deviation of these
    rms_deviation: float  # root mean square of (value - mean) / deviation


def layer_evidence(names: Sequence[str], features: Floats, mean: Floats, deviation: Floats) -> list[LayerEvidence]:
    """Returns the evidence of one image from arrays (D,); neighbouring features of the same name are one layer."""
    distance = np.abs(features - mean)
    away = np.divide(distance, deviation, out=np.where(distance > 0, MAX_DEVIATIONS, 0.0), where=deviation > 0)
    squares = np.square(np.minimum(away, MAX_DEVIATIONS))
    layers, start = [], 0
    for name, group in groupby(names):
        part = slice(start, start + len(list(group)))
        rms = float(np.sqrt(squares[part].mean()))
        layers.append(LayerEvidence(name, features[part], mean[part], deviation[part], rms))
        start = part.stop
    return layers
