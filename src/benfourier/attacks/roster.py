"""Which attacks are to make examples, each under a label and with its options."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benfourier.attacks.catalogue import recipe
from benfourier.errors import OptionError, check_choice

Options = Mapping[str, object]
Wanted = str | Sequence[str] | Mapping[str, str | tuple[str, Options]]


@dataclass(frozen=True)
class Entry:
    """An attack under the label that its images will have.

    Args:
        label: what examples call it.
        name: id of the attack.
        options: every option, those left at their default too, as JSON can hold them.
    """

    label: str
    name: str
    options: Mapping[str, Any]


def roster(wanted: Wanted, options: Mapping[str, Options]) -> tuple[Entry, ...]:
    """Returns the attacks that are wanted, all options checked.

    Args:
        wanted: an id, several of them, or by label an id or a pair of id and options.
        options: by label; an attack without a label is called by its id.
    """
    named = _by_label(wanted)
    for label in options:
        check_choice("label in options", label, named)
    return tuple(_entry(label, name, {**inside, **options.get(label, {})}) for label, (name, inside) in named.items())


def check_apart(entries: tuple[Entry, ...], others: tuple[Entry, ...]) -> None:
    """Raises OptionError if a label is in both."""
    both = {entry.label for entry in entries} & {entry.label for entry in others}
    if both:
        raise OptionError(f"attack and beside both hold {min(both)!r}; give each a label of its own")


def _by_label(wanted: Wanted) -> dict[str, tuple[str, Options]]:
    if isinstance(wanted, Mapping):
        named = {label: _pair(label, entry) for label, entry in wanted.items()}
    else:
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise OptionError(
                f"attack names {twice!r} twice; give each a label, as in "
                f'{{"weak": ({twice!r}, {{...}}), "strong": ({twice!r}, {{...}})}}'
            )
        named = {name: (name, {}) for name in names}
    if not named:
        raise OptionError("attack is empty; name at least one, such as 'bim'")
    return named


def _pair(label: str, given: str | tuple[str, Options]) -> tuple[str, Options]:
    if isinstance(given, str):
        return given, {}
    if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[1], Mapping):
        raise OptionError(f"attack {label!r} is {given!r}; it must be an id, or a pair of id and options")
    return given[0], given[1]


def _entry(label: str, name: str, options: Options) -> Entry:
    full = dict(recipe(name, options).options)
    try:
        json.dumps(full, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"the options of {label} cannot be written as JSON ({error}); examples tell how they were made: "
            "use text, numbers and lists"
        ) from error
    return Entry(label, name, full)
