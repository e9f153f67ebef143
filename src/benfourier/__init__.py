"""Guards image classifiers: tells adversarial images from honest ones by listening to the network's layers.

Everything below loads on first use, so that `import benfourier` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from benfourier.attacks.attack import attack as attack
    from benfourier.attacks.result import AttackResult as AttackResult
    from benfourier.errors import BenfourierError as BenfourierError
    from benfourier.subjects.features import features as features
    from benfourier.subjects.images import images as images
    from benfourier.subjects.subject import Subject as Subject
    from benfourier.theory.coefficients import coefficient_magnitudes as coefficient_magnitudes
    from benfourier.theory.coefficients import estimate_magnitudes as estimate_magnitudes

_HOMES = {
    "AttackResult": "benfourier.attacks.result",
    "BenfourierError": "benfourier.errors",
    "Subject": "benfourier.subjects.subject",
    "attack": "benfourier.attacks.attack",
    "coefficient_magnitudes": "benfourier.theory.coefficients",
    "estimate_magnitudes": "benfourier.theory.coefficients",
    "features": "benfourier.subjects.features",
    "images": "benfourier.subjects.images",
}

__all__ = [
    "AttackResult",
    "BenfourierError",
    "Subject",
    "attack",
    "catalogue",
    "coefficient_magnitudes",
    "estimate_magnitudes",
    "features",
    "images",
]


def catalogue() -> list[str]:
    """Returns the ids of all attacks."""
    from benfourier.attacks.catalogue import ATTACKS

    return sorted(ATTACKS)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'benfourier' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
