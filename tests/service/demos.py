"""Samples of small digits."""

from functools import cache

from benfourier.data.images import LabelledImages
from benfourier.service.demo import Demo
from tests.detectors.toys import toys
from tests.service.serving import NAMES, clean


@cache
def demo() -> Demo:
    """The first six clean digits of the test part, all classified correctly."""
    labels = toys().tested.labels[:6]
    return Demo("digits", LabelledImages(clean(6), labels), [NAMES[label] for label in labels.tolist()])
