"""The options of all attacks: which values each may take, said in one place."""

import math
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from numbers import Real

from benfourier.errors import OptionError, check_choice, check_switch, check_whole

Check = Callable[[str, object], object]  # name and value, to the value as the attack takes it


def number(*, above: float = -math.inf, least: float = -math.inf, below: float = math.inf) -> Check:
    """Returns a check for finite numbers in a range."""
    sides = [
        f"{word} {bound:g}"
        for word, bound in (("above", above), ("of at least", least), ("below", below))
        if math.isfinite(bound)
    ]

    def check(name: str, value: object) -> float:
        plain = not isinstance(value, bool) and isinstance(value, Real)
        taken = float(value) if plain else math.nan  # type: ignore[arg-type]
        if not (math.isfinite(taken) and above < taken and least <= taken < below):
            raise OptionError(f"{name} is {value!r}; it must be a number {' and '.join(sides)}")
        return taken

    return check


def whole(least: int) -> Check:
    """Returns a check for whole numbers."""
    return lambda name, value: check_whole(name, value, least=least)


def word(*allowed: str) -> Check:
    """Returns a check for one of some words."""

    def check(name: str, value: object) -> object:
        check_choice(name, value, allowed)
        return value

    return check


def or_none(check: Check) -> Check:
    """Returns a check that lets None through."""
    return lambda name, value: None if value is None else check(name, value)


CHECKS: Mapping[str, Check] = {
    "abort_early": check_switch,
    "candidates": whole(2),
    "confidence": number(least=0),
    "eps": number(above=0),
    "exact": check_switch,
    "initial_constant": number(above=0),
    "iterations": whole(1),
    "lr": number(above=0),
    "norm": word("Linf", "L2"),
    "search_steps": whole(1),
    "step": or_none(number(above=0)),
    "steps": whole(1),
    "tolerance": number(least=0, below=1),
    "version": word("standard", "plus", "rand"),
}


def check_known(attack: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises OptionError for the first option that the attack does not have."""
    words = sorted(known)
    for name in given:
        if name not in words:
            near = get_close_matches(name, words, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"{attack} has no option {name!r}; its options: {', '.join(words) or 'none'}{hint}")


def checked(options: Mapping[str, object]) -> dict[str, object]:
    """Returns the options with every value checked."""
    return {name: CHECKS[name](name, value) for name, value in options.items()}
