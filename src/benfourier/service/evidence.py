"""Where in the network an image is odd: the detector's numbers, layer by layer, beside those of clean images."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benfourier.detectors.detector import Detector
from benfourier.detectors.method import Listening
from benfourier.detectors.nearest_class import LayerGaussians
from benfourier.guard.guard import Guard

Floats = NDArray[np.float64]
MOST = 1e6  # deviations: numbers that never vary would be infinitely far away


@dataclass(frozen=True, eq=False)
class LayerEvidence:
    """One layer's numbers of one image.

    Args:
        layer: its name; the detector's if it does not speak of layers.
        values: of the image.
        mean: of held-out clean images.
        deviation: standard deviation of these.
        oddness: root mean square of (value − mean) / deviation.
    """

    layer: str
    values: Floats
    mean: Floats
    deviation: Floats
    oddness: float


def evidence(guard: Guard, numbers: Floats) -> list[LayerEvidence]:
    """Returns the evidence of one image, layer by layer in firing order.

    Args:
        guard: knows the clean images' numbers.
        numbers: the detector's measure of the image, (D,).
    """
    names = layers_of(guard.detector, len(numbers))
    columns = np.arange(len(numbers)).reshape(len(names), -1)
    mean, deviation = guard.calibration.mean, guard.calibration.deviation
    return [_layer(name, numbers[part], mean[part], deviation[part]) for name, part in zip(names, columns, strict=True)]


def kind_of(detector: Detector) -> str:
    """Returns "spectrum" if a layer's numbers are |â_1|, |â_2|, and so on, else "numbers"."""
    return "spectrum" if detector.method.name == "mbf" else "numbers"


def layers_of(detector: Detector, count: int) -> tuple[str, ...]:
    """Returns the layers that so many numbers belong to; the detector's own name if it does not speak of layers."""
    measure = detector.measure
    names = measure.layers if isinstance(measure, Listening | LayerGaussians) else ()
    return tuple(names) if names and count % len(names) == 0 else (detector.method.name,)


def _layer(name: str, values: Floats, mean: Floats, deviation: Floats) -> LayerEvidence:
    gap = np.abs(values - mean)
    away = np.divide(gap, deviation, out=np.where(gap > 0, MOST, 0.0), where=deviation > 0)
    return LayerEvidence(name, values, mean, deviation, float(np.sqrt(np.square(np.minimum(away, MOST)).mean())))
