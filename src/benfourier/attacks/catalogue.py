"""All attacks by id: one import per attack file. An attack outside this package registers itself."""

from typing import Any

from benfourier.attacks import autoattack, bim, cw_l2, deepfool, foolbox_attacks, r_pgd  # noqa: F401
from benfourier.attacks.attack import ATTACKS, Attack


def make_attack(name: str, /, **options: Any) -> Attack:
    """Returns the attack of an id, or "foolbox:" and the name of a class of Foolbox 3; its options are checked."""
    return ATTACKS.make(name, options)


def attack_ids() -> list[str]:
    """Returns the ids of all attacks that need no more than their id."""
    return [name for name in ATTACKS if not ATTACKS[name].needs_variant]
