"""A guard over the network of small digits, made once per process."""

from functools import cache
from typing import Any

import benfourier as bf
from tests.detectors.toys import toys

RATE = 0.1


@cache
def detector() -> bf.Detector:
    """MBF fitted to bim."""
    toy_data = toys()
    return bf.fit(
        "mbf", toy_data.classifier, toy_data.fitted.for_attack("bim"), show_progress=False, C=10.0, gamma="scale"
    )


@cache
def guard() -> bf.Guard:
    """Its threshold comes from the 40 clean images of the test part."""
    return bf.Guard.calibrated(detector(), toys().tested.clean, RATE, known=toys().fitted.clean)


@cache
def other_guard(name: str, **options: Any) -> bf.Guard:
    """A guard with another detector."""
    toy_data = toys()
    examples = toy_data.fitted.for_attack("bim")
    fitted = bf.fit(name, toy_data.classifier, examples, show_progress=False, C=1.0, gamma=1.0, **options)
    return bf.Guard.calibrated(fitted, toy_data.tested.clean, 0.1, known=toy_data.fitted.clean)
