import inspect
import re
from typing import Any

import numpy as np
import pytest

from benfourier import errors
from benfourier.errors import BenfourierError, InputError, MissingExtraError, OptionError, check_choice, check_whole


def tree() -> dict[str, list[str]]:
    """Every exception of the module with its parents in it."""
    found = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    return {name: [base.__name__ for base in kind.__bases__] for name, kind in found.items()}


def test_every_exception_has_the_place_that_the_docstring_draws() -> None:
    drawn: dict[str, str] = {}
    above: list[str] = []
    for bars, name in re.findall(r"^    ((?:[│├└─]|    | )*?)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE):
        del above[len(bars) // 4 :]
        drawn[name] = above[-1] if above else "Exception"
        above.append(name)
    assert drawn == {name: bases[0] for name, bases in tree().items()}


def test_what_a_caller_got_wrong_is_a_value_error_too() -> None:
    assert issubclass(InputError, ValueError)
    assert issubclass(MissingExtraError, ImportError)
    assert not issubclass(BenfourierError, ValueError)


@pytest.mark.parametrize("value", [1, 7, np.int32(7), np.uint8(1)])
def test_whole_numbers_pass_as_plain_integers(value: Any) -> None:
    assert check_whole("orders", value) == value
    assert type(check_whole("orders", value)) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, 1.5, True, "3", None, float("nan"), np.float64(2), [1]])
def test_other_values_are_refused_with_name_and_value(value: Any) -> None:
    complaint = f"orders is {value!r}; it must be a whole number of at least 1"
    with pytest.raises(OptionError, match=re.escape(complaint)):
        check_whole("orders", value)


def test_the_least_allowed_number_can_be_chosen() -> None:
    assert check_whole("seed", 0, least=0) == 0
    with pytest.raises(OptionError, match="seed is -1; it must be a whole number of at least 0"):
        check_whole("seed", -1, least=0)


def test_a_word_that_is_not_allowed_is_refused_with_the_nearest_one() -> None:
    check_choice("fruit", "pear", ["apple", "pear"])
    with pytest.raises(OptionError, match=re.escape("fruit is 'peer'; allowed: apple, pear; did you mean 'pear'?")):
        check_choice("fruit", "peer", ["apple", "pear"])


@pytest.mark.parametrize("value", ["zebra", None, 3, []])
def test_without_a_near_word_the_allowed_ones_are_listed(value: Any) -> None:
    with pytest.raises(OptionError, match=re.escape(f"fruit is {value!r}; allowed: apple, pear") + "$"):
        check_choice("fruit", value, ["apple", "pear"])
