"""Attacks and their options, as words of a command line."""

import json
from collections.abc import Sequence

from benfourier.errors import OptionError


def wanted(attacks: Sequence[str], options: Sequence[str]) -> dict[str, tuple[str, dict[str, object]]]:
    """Returns ids and options by label.

    Args:
        attacks: ids, "bim", or with a label, "weak=bim-fixed".
        options: "label.option=value", such as "weak.eps=8/255".
    """
    found: dict[str, tuple[str, dict[str, object]]] = {}
    for word in attacks:
        label, _, name = word.rpartition("=")
        if (label or name) in found:
            raise OptionError(
                f"attack {label or name!r} is given twice; give each a label, as in --attack weak={name} "
                f"--attack strong={name}"
            )
        found[label or name] = (name, {})
    for word in options:
        place, sign, text = word.partition("=")
        label, dot, option = place.rpartition(".")
        if not (sign and dot and option) or label not in found:
            raise OptionError(
                f"option is {word!r}; it must be label.option=value, with a label among {', '.join(found)}"
            )
        found[label][1][option] = value_of(text)
    return found


def value_of(text: str) -> object:
    """Returns the number, quotient, truth value or word that a text means; "none" is None."""
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except json.JSONDecodeError:
        pass
    above, bar, below = text.partition("/")
    try:
        if bar:
            return float(above) / float(below)
    except (ValueError, ZeroDivisionError):
        pass
    return None if text in ("none", "None") else text
