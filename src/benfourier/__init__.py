"""Guards image classifiers: tells adversarial images from honest ones by listening to the network's layers.

Everything below loads on first use, so that `import benfourier` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from benfourier.attacks.attack import attack as attack
    from benfourier.attacks.examples import make_examples as make_examples
    from benfourier.attacks.result import AttackResult as AttackResult
    from benfourier.data.examples import Examples as Examples
    from benfourier.data.labelled import Labelled as Labelled
    from benfourier.data.opening import open_source as open_source
    from benfourier.detectors.catalogue import fit as fit
    from benfourier.detectors.detector import Detector as Detector
    from benfourier.detectors.detector import score_many as score_many
    from benfourier.detectors.mbf import MBF as MBF
    from benfourier.detectors.saving import load as load
    from benfourier.errors import BenfourierError as BenfourierError
    from benfourier.guard.guard import Guard as Guard
    from benfourier.guard.saving import load_guard as load_guard
    from benfourier.guard.verdicts import Verdicts as Verdicts
    from benfourier.subjects.features import features as features
    from benfourier.subjects.images import images as images
    from benfourier.subjects.naming import open_subject as open_subject
    from benfourier.subjects.subject import Subject as Subject
    from benfourier.theory.coefficients import coefficient_magnitudes as coefficient_magnitudes
    from benfourier.theory.coefficients import estimate_magnitudes as estimate_magnitudes

_HOMES = {
    "AttackResult": "benfourier.attacks.result",
    "BenfourierError": "benfourier.errors",
    "Detector": "benfourier.detectors.detector",
    "Examples": "benfourier.data.examples",
    "Guard": "benfourier.guard.guard",
    "Labelled": "benfourier.data.labelled",
    "MBF": "benfourier.detectors.mbf",
    "Subject": "benfourier.subjects.subject",
    "Verdicts": "benfourier.guard.verdicts",
    "attack": "benfourier.attacks.attack",
    "coefficient_magnitudes": "benfourier.theory.coefficients",
    "estimate_magnitudes": "benfourier.theory.coefficients",
    "features": "benfourier.subjects.features",
    "fit": "benfourier.detectors.catalogue",
    "images": "benfourier.subjects.images",
    "load": "benfourier.detectors.saving",
    "load_guard": "benfourier.guard.saving",
    "make_examples": "benfourier.attacks.examples",
    "open_source": "benfourier.data.opening",
    "open_subject": "benfourier.subjects.naming",
    "score_many": "benfourier.detectors.detector",
}

__all__ = [  # noqa: RUF022, as sorted() has it
    "AttackResult",
    "BenfourierError",
    "Detector",
    "Examples",
    "Guard",
    "Labelled",
    "MBF",
    "Subject",
    "Verdicts",
    "attack",
    "catalogue",
    "coefficient_magnitudes",
    "estimate_magnitudes",
    "features",
    "fit",
    "images",
    "load",
    "load_guard",
    "make_examples",
    "open_source",
    "open_subject",
    "score_many",
]


def catalogue() -> list[str]:
    """Returns the ids of all detectors and attacks."""
    from benfourier.attacks.catalogue import ATTACKS
    from benfourier.detectors.catalogue import ids

    return sorted([*ATTACKS, *ids()])


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'benfourier' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
