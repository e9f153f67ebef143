"""A guard over the network of small digits, made once per process."""

from functools import cache

import benfourier as bf
from tests.detectors.toys import toys

RATE = 0.1


@cache
def detector() -> bf.Detector:
    """MBF fitted to bim."""
    made = toys()
    return bf.fit("mbf", made.subject, made.fitted.for_attack("bim"), show_progress=False, C=10.0, gamma="scale")


@cache
def guard() -> bf.Guard:
    """Its threshold comes from the 40 clean images of the test part."""
    return bf.Guard(toys().subject, detector(), false_alarm_rate=RATE, clean=toys().tested.clean)
