"""The exceptions of benfourier, one tree.

::

    BenfourierError
    ├── InputError (ValueError)     a value that a caller passed cannot be used
    │   ├── ImageError              images: rank, channels, size, dtype, bounds, NaN, files
    │   ├── LayerError              layer names, patterns or types that match nothing
    │   ├── OptionError             an option outside its allowed range
    │   └── PlanError               a plan of an evaluation that cannot be run as it is written
    ├── SubjectError                the wrapped module is not a classifier we can listen to
    ├── ResponseError               a layer answered with NaN or infinity
    ├── FitError                    data that no distribution of the family fits
    ├── StoreError                  a stored file is missing, damaged, or not what it should be
    └── MissingExtraError           an optional dependency is not installed

Every message says what is wrong with which value, what is allowed, and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class BenfourierError(Exception):
    """Base of every exception raised on purpose by benfourier."""


class InputError(BenfourierError, ValueError):
    """A value that a caller passed cannot be used."""


class ImageError(InputError):
    """Images that cannot be shown to the subject."""


class LayerError(InputError):
    """A layer selection that matches nothing."""


class OptionError(InputError):
    """An option outside its allowed range."""


class PlanError(InputError):
    """A plan of an evaluation that cannot be run as it is written."""


class SubjectError(BenfourierError):
    """The wrapped module is not a classifier that can be listened to."""


class ResponseError(BenfourierError):
    """A layer answered with NaN or infinity."""


class FitError(BenfourierError):
    """Data that no distribution of the family fits."""


class StoreError(BenfourierError):
    """A stored file is missing, damaged, or not what it should be."""


class MissingExtraError(BenfourierError, ImportError):
    """An optional dependency is not installed."""


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raises OptionError unless value is one of the allowed words."""
    words = list(allowed)
    if value not in words:
        near = get_close_matches(str(value), words, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise OptionError(f"{name} is {value!r}; allowed: {', '.join(words)}{hint}")


def check_whole(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Returns value as an int, or raises OptionError unless it is a whole number in that range."""
    found = None if isinstance(value, bool) or not hasattr(value, "__index__") else int(value.__index__())
    if found is None or found < least or (most is not None and found > most):
        to = "" if most is None else f" and at most {most}"
        raise OptionError(f"{name} is {value!r}; it must be a whole number of at least {least}{to}")
    return found


def check_seed(value: object) -> int:
    """Returns a seed, or raises OptionError unless every library that draws can take it."""
    return check_whole("seed", value, least=0, most=2**32 - 1)


def check_switch(name: str, value: object) -> bool:
    """Returns the value if it is True or False, or raises OptionError."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} is {value!r}; it must be True or False")
    return value
