"""All attacks by id."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, Protocol

from benfourier.attacks.autoattack import AutoAttack
from benfourier.attacks.bim import Bim, BimFixed
from benfourier.attacks.cw_l2 import CwL2
from benfourier.attacks.deepfool import DeepFool
from benfourier.attacks.foolbox_door import PREFIX, foolbox_attack
from benfourier.attacks.hunt import Hunt
from benfourier.attacks.options import check_known, checked
from benfourier.attacks.r_pgd import RPgd, RPgdFixed
from benfourier.errors import check_choice


class Attack(Protocol):
    """A way to mislead: frozen options, and a run over the rows of a hunt."""

    @property
    def confidence(self) -> float:
        """By how much another logit must lead the label's for a success."""

    def run(self, hunt: Hunt) -> None:
        """Offers the hunt the images that it finds."""


ATTACKS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "autoattack": AutoAttack,
        "bim": Bim,
        "bim-fixed": BimFixed,
        "cw-l2": CwL2,
        "deepfool": DeepFool,
        "r-pgd": RPgd,
        "r-pgd-fixed": RPgdFixed,
    }
)


@dataclass(frozen=True)
class Recipe:
    """An attack with its options, as a result states them."""

    attack: Attack
    options: Mapping[str, object]


def recipe(name: str, options: Mapping[str, object]) -> Recipe:
    """Returns the attack of that id; its options are checked."""
    if isinstance(name, str) and name.startswith(PREFIX):
        guest = foolbox_attack(name.removeprefix(PREFIX), options)
        return Recipe(guest, MappingProxyType({**guest.arguments, "eps": guest.eps}))
    check_choice("attack", name, [*ATTACKS, f"{PREFIX}<class>"])
    kind = ATTACKS[name]
    check_known(name, options, [field.name for field in fields(kind)])
    attack = kind(**checked(options))
    return Recipe(attack, MappingProxyType(asdict(attack)))
