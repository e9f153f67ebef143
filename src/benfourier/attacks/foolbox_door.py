"""Any attack of Foolbox 3 by its class name, as in `foolbox:EADAttack`; the only door to Foolbox."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import isabstract, signature
from typing import Any, ClassVar

from torch import Tensor

from benfourier.attacks.guest import Guest, optional, play
from benfourier.attacks.hunt import Hunt
from benfourier.attacks.options import CHECKS, check_known
from benfourier.errors import OptionError, check_choice

PREFIX = "foolbox:"


@dataclass(frozen=True)
class FoolboxAttack:
    """An attack of Foolbox on images from 0 to 1; one that draws at random meets every image by itself.

    Args:
        kind: name of its class.
        arguments: of its constructor.
        eps: a multiple of the width of the bounds; None for attacks that look for the least perturbation.
    """

    kind: str
    arguments: Mapping[str, Any]
    eps: float | None
    confidence: ClassVar[float] = 0.0

    def run(self, hunt: Hunt) -> None:
        """Offers what it finds."""
        foolbox = _foolbox()
        attack = getattr(foolbox.attacks, self.kind)(**self.arguments)

        def strike(network: Guest, images: Tensor, labels: Tensor, seed: int) -> Tensor:
            model = foolbox.PyTorchModel(network, bounds=(0, 1), device=images.device)
            found: Tensor = attack(model, images, labels, epsilons=self.eps)[1]
            return found

        play(hunt, strike, alone=False)


def foolbox_attack(kind: str, options: Mapping[str, Any]) -> FoolboxAttack:
    """Returns the attack, its options checked: those of the constructor, and eps."""
    attacks = _foolbox().attacks
    named = {name: found for name, found in vars(attacks).items() if isinstance(found, type) and not isabstract(found)}
    check_choice("Foolbox's attack", kind, sorted(named))
    form = signature(named[kind])
    check_known(PREFIX + kind, options, [*form.parameters, "eps"])
    eps = options.get("eps")
    if eps is not None:
        CHECKS["eps"]("eps", eps)
    elif issubclass(named[kind], attacks.base.FixedEpsilonAttack):
        raise OptionError(f"eps is {eps!r}; {PREFIX}{kind} needs a number above 0, a multiple of the bounds' width")
    try:
        bound = form.bind(**{name: value for name, value in options.items() if name != "eps"})
    except TypeError as error:
        raise OptionError(f"the options of {PREFIX}{kind} are {sorted(options)}: {error}") from error
    bound.apply_defaults()
    return FoolboxAttack(kind, bound.arguments, eps)


def _foolbox() -> Any:
    """Foolbox, imported without the complaint of its GitPython about machines that have no git."""
    missing = "GIT_PYTHON_REFRESH" not in os.environ
    if missing:
        os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    try:
        with optional("foolbox"):
            import foolbox
        return foolbox
    finally:
        if missing:
            del os.environ["GIT_PYTHON_REFRESH"]
