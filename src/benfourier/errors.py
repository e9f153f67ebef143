"""The exceptions of benfourier, one tree.

::

    BenfourierError
    ├── InputError (ValueError)     a value that a caller passed cannot be used
    │   ├── ImageError              images: rank, channels, size, dtype, bounds, NaN, files
    │   ├── LayerError              layer names, patterns or types that match nothing
    │   ├── OptionError             an option outside its allowed range
    │   └── PlanError               a plan of an evaluation that cannot be run as written
    ├── ClassifierError             the wrapped module is not a classifier whose layers can be observed
    ├── ActivationError             a layer's activation holds NaN or infinity, or a layer did not run
    ├── FitError                    data that no distribution of the family fits
    ├── StoreError                  a stored file is missing, damaged, or not what it should be
    └── MissingExtraError           an optional dependency is not installed

Every message says what is wrong with which value, what is allowed, and what to do. The checks at the end give the
same phrase to the same fault everywhere.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from math import inf, isfinite, nan
from numbers import Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

LARGEST_WHOLE = 2**63 - 1  # torch and NumPy count in 64 bits
MOST_THREADS = 1024  # torch starts as many as it is told to, and ends the process where the system refuses one


class BenfourierError(Exception):
    """Base of every exception raised on purpose by benfourier."""


class InputError(BenfourierError, ValueError):
    """A value that a caller passed cannot be used."""


class ImageError(InputError):
    """Images that cannot be shown to the classifier."""


class LayerError(InputError):
    """A layer selection that matches nothing."""


class OptionError(InputError):
    """An option outside its allowed range."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option  # the name of the option that is wrong, if it is one


class PlanError(InputError):
    """A plan of an evaluation that cannot be run as written."""


class ClassifierError(BenfourierError):
    """The wrapped module is not a classifier whose layers can be observed."""


class ActivationError(BenfourierError):
    """A layer's activation holds NaN or infinity, or a layer did not run."""


class FitError(BenfourierError):
    """Data that no distribution of the family fits."""


class StoreError(BenfourierError):
    """A stored file is missing, damaged, or not what it should be."""


class MissingExtraError(BenfourierError, ImportError):
    """An optional dependency is not installed."""


@contextmanager
def optional_import(need: str, extra: str, otherwise: str = "") -> Iterator[None]:
    """Turns a failing import in the block into MissingExtraError with the command that installs the extra."""
    try:
        yield
    except ImportError as error:
        command = f"pip install 'benfourier[{extra}]'{otherwise}"
        raise MissingExtraError(f"{need}, which cannot be imported ({error}); {command}") from error


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Raises OptionError unless value is one of the allowed words."""
    words = list(allowed)
    if value not in words:
        raise OptionError(f"{name} is {value!r}; allowed: {', '.join(words)}{near_word(value, words)}", name)


def near_word(value: object, words: Iterable[str], otherwise: str = "") -> str:
    """Returns the end of a message: "; did you mean" and the word most like the value, if one is like it."""
    near = get_close_matches(str(value), list(words), n=1)
    return f"; did you mean {near[0]!r}?" if near else otherwise


def check_whole(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Returns value as an int, or raises OptionError unless it is a whole number in that range."""
    number = None if isinstance(value, bool) or not hasattr(value, "__index__") else int(value.__index__())
    limit = LARGEST_WHOLE if most is None else most
    if number is None or not least <= number <= limit:
        to = f" and at most {limit}" if most is not None or (number or 0) > limit else ""
        raise OptionError(f"{name} is {value!r}; it must be a whole number of at least {least}{to}", name)
    return number


def check_number(
    name: str, value: object, *, above: float = -inf, least: float = -inf, below: float = inf, most: float = inf
) -> float:
    """Returns value as a float, or raises OptionError unless it is a finite number in that range.

    The bounds `least` and `most` are allowed themselves, `above` and `below` are not.
    """
    number = nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not (isfinite(number) and above < number < below and least <= number <= most):
        sides = (("above", above), ("of at least", least), ("below", below), ("of at most", most))
        limits = " and ".join(f"{side} {bound:g}" for side, bound in sides if isfinite(bound))
        allowed = f"a number {limits}" if limits else "a finite number"
        raise OptionError(f"{name} is {value!r}; it must be {allowed}", name)
    return number


def check_probability(value: "ArrayLike", name: str = "probability") -> "NDArray[np.float64]":
    """Returns probabilities as a float64 array, or raises OptionError unless all are between 0 and 1."""
    import numpy as np  # the command line imports this module; without NumPy it starts faster

    numbers = np.asarray(value, dtype=np.float64)
    outside = ~((numbers >= 0) & (numbers <= 1))
    if outside.any():
        raise OptionError(f"{name} is {numbers[outside].flat[0]!s}; it must be between 0 and 1", name)
    return numbers


def check_seed(value: object) -> int:
    """Returns a seed, or raises OptionError unless every library that draws can take it."""
    return check_whole("seed", value, least=0, most=2**32 - 1)


def check_threads(value: object) -> int:
    """Returns a number of threads, or raises OptionError unless a process can have that many."""
    return check_whole("threads", value, most=MOST_THREADS)


def check_switch(name: str, value: object) -> bool:
    """Returns the value if it is True or False, or raises OptionError."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} is {value!r}; it must be True or False", name)
    return value
