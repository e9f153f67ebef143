"""Attacks and detectors as a plan lists them, checked by building them."""

import re
from collections.abc import Sequence
from typing import Any

from benfourier.attacks.catalogue import ATTACKS
from benfourier.attacks.foolbox_door import PREFIX
from benfourier.attacks.roster import roster
from benfourier.detectors.catalogue import ids
from benfourier.errors import InputError
from benfourier.evaluation.plan import DEAR, ROLES, TWINS, AttackPlan, DetectorPlan
from benfourier.evaluation.plan_tables import Table

LEAST = 10  # source images
TAKEN = ("clean", "noisy")  # kinds of images beside the attacked ones
QUOTIENT = re.compile(r"(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)")


def attack_of(table: Table, sources: int) -> AttackPlan:
    """Returns one attack, all its options checked."""
    name = table.take("name", str)
    if not name.startswith(PREFIX):
        table.word_of("name", name, [*ATTACKS, f"{PREFIX}<class>"])
    label, role = table.take("label", str, ""), table.word("role", ROLES, "boundary")
    count = table.whole("sources", sources, least=LEAST, most=sources)
    reduced, own_noise = table.take("reduced", str, ""), table.take("own_noise", bool, False)
    transfer = table.whole_or_not("transfer", True, least=LEAST, most=count)
    given = {key: _number(value) for key, value in table.rest().items()}
    try:
        (entry,) = roster({name: (name, given)}, {})
    except InputError as error:
        table.retell(error, given)
    label = label or " ".join([name, ", ".join(f"{key}={_short(value)}" for key, value in given.items())]).strip()
    if label in TAKEN:
        table.refuse("label", f"is {label!r}, which names images that are not attacked; choose another")
    return AttackPlan(name, label, role, count, dict(entry.options), reduced, own_noise, transfer)


def detector_of(table: Table, seed: int, sources: int, calibration: int) -> DetectorPlan:
    """Returns one detector, all its options checked."""
    name = table.word("name", ids())
    label, preset = table.take("label", str, ""), table.take("preset", str, None)
    few = table.whole("sources", None, least=LEAST, most=sources)
    usual = calibration if few is None else min(calibration, max(DEAR, few))
    enough = table.whole("calibration", usual, least=0, most=calibration)
    reduced, twins = table.take("reduced", str, ""), table.word("twins", TWINS, "one")
    given = table.rest()
    entry = DetectorPlan(
        name, label or name, {"seed": seed, **given}, preset, sources if few is None else few, enough, reduced, twins
    )
    try:
        _ = entry.method
    except InputError as error:
        table.retell(error, ["preset", *given])
    except TypeError as error:
        table.refuse("", f"has a value of the wrong type ({error})")
    return entry


def unlike(table: Table, key: str, entries: Sequence[AttackPlan | DetectorPlan]) -> None:
    """Raises PlanError if two entries have one label."""
    labels = [entry.label for entry in entries]
    for place, label in enumerate(labels):
        if label in labels[:place]:
            table.refuse(f"{key}[{place}].label", f"is {label!r} again; give each a label of its own")


def _number(value: Any) -> Any:
    """Numbers of a text such as "8/255"."""
    found = QUOTIENT.fullmatch(value) if isinstance(value, str) else None
    return float(found.group(1)) / float(found.group(2)) if found and float(found.group(2)) else value


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
