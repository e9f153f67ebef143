import inspect
import re
from typing import Any

import numpy as np
import pytest

from benfourier import errors
from benfourier.errors import (
    BenfourierError,
    InputError,
    MissingExtraError,
    OptionError,
    check_choice,
    check_number,
    check_probability,
    check_whole,
)


def tree() -> dict[str, list[str]]:
    """Every exception of the module with its parents in it."""
    kinds = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    return {name: [base.__name__ for base in kind.__bases__] for name, kind in kinds.items()}


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


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(1)])
def test_numbers_in_range_pass_as_floats(value: Any) -> None:
    assert check_number("rate", value, above=0, most=1) == float(value)
    assert type(check_number("rate", value, above=0, most=1)) is float


@pytest.mark.parametrize("value", [0, 1.5, True, "1", None, float("nan"), float("inf"), [0.5]])
def test_other_numbers_are_refused_with_name_value_and_range(value: Any) -> None:
    complaint = f"rate is {value!r}; it must be a number above 0 and of at most 1"
    with pytest.raises(OptionError, match=re.escape(complaint)):
        check_number("rate", value, above=0, most=1)


def test_infinity_is_no_number_in_a_range_without_bounds() -> None:
    with pytest.raises(OptionError, match="location is inf; it must be a finite number"):
        check_number("location", float("inf"))


def test_probabilities_are_between_0_and_1() -> None:
    assert check_probability([0, 0.5, 1]).tolist() == [0, 0.5, 1]
    with pytest.raises(OptionError, match=re.escape("p is 1.5; it must be between 0 and 1")):
        check_probability([0.5, 1.5], "p")
    with pytest.raises(OptionError, match="probability is nan"):
        check_probability(float("nan"))


def test_a_word_that_is_not_allowed_is_refused_with_the_nearest_one() -> None:
    check_choice("fruit", "pear", ["apple", "pear"])
    with pytest.raises(OptionError, match=re.escape("fruit is 'peer'; allowed: apple, pear; did you mean 'pear'?")):
        check_choice("fruit", "peer", ["apple", "pear"])


@pytest.mark.parametrize("value", ["zebra", None, 3, []])
def test_without_a_near_word_the_allowed_ones_are_listed(value: Any) -> None:
    with pytest.raises(OptionError, match=re.escape(f"fruit is {value!r}; allowed: apple, pear") + "$"):
        check_choice("fruit", value, ["apple", "pear"])
