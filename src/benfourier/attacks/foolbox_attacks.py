"""Any attack of Foolbox 3 by the name of its class: `foolbox:EADAttack`. The only module that imports Foolbox."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import isabstract, signature
from typing import Any, ClassVar, Self

from torch import Tensor

from benfourier.attacks.attack import Attack, register_attack
from benfourier.attacks.foreign import ForeignModel, OneByOneError, run_foreign
from benfourier.attacks.run import AttackRun
from benfourier.errors import OptionError, check_choice, optional_import
from benfourier.options import check_known_options, number


@register_attack
@dataclass(frozen=True, kw_only=True)
class FoolboxAttack(Attack):
    """An attack of Foolbox on images from 0 to 1; one that draws at random gets every image by itself."""

    class_name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of its constructor
    # a multiple of the width of the bounds; None for attacks that look for the least perturbation
    eps: float | None = number(None, None, above=0)
    id: ClassVar[str] = "foolbox"
    library: ClassVar[str] = "foolbox"
    needs_variant: ClassVar[str] = "add the name of a class of Foolbox 3, as in 'foolbox:EADAttack'"

    @property
    def name(self) -> str:
        """The id with the name of the class: "foolbox:EADAttack"."""
        return f"{self.id}:{self.class_name}"

    def as_dict(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, and eps."""
        return {**self.arguments, "eps": self.eps}

    @classmethod
    def variant(cls, word: str, options: Mapping[str, Any]) -> Self:
        """Returns the attack of a class; options are those of its constructor, and eps."""
        attacks = _foolbox().attacks
        classes = {
            name: each for name, each in vars(attacks).items() if isinstance(each, type) and not isabstract(each)
        }
        check_choice("Foolbox's attack", word, sorted(classes))
        name, form = f"{cls.id}:{word}", signature(classes[word])
        check_known_options(name, options, [*form.parameters, "eps"])
        if options.get("eps") is None and issubclass(classes[word], attacks.base.FixedEpsilonAttack):
            raise OptionError(f"eps is None; {name} needs a number above 0, a multiple of the bounds' width", "eps")
        try:
            bound = form.bind(**{option: value for option, value in options.items() if option != "eps"})
        except TypeError as error:
            raise OptionError(f"the options of {name} are {sorted(options)}: {error}") from error
        bound.apply_defaults()
        return cls(class_name=word, arguments=bound.arguments, eps=options.get("eps"))

    def run(self, run: AttackRun) -> None:
        """Records what Foolbox finds."""
        foolbox = _foolbox()
        attack = getattr(foolbox.attacks, self.class_name)(**self.arguments)

        def run_foolbox(model: ForeignModel, images: Tensor, labels: Tensor, seed: int) -> Tensor:
            wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=images.device)
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", ".* failed to draw sufficient random inputs", UserWarning)
                    adversarial: Tensor = attack(wrapped, images, labels, epsilons=self.eps)[1]
            except ValueError as error:
                if not str(error).startswith("init_attack failed"):
                    raise
                if len(images) > 1:
                    raise OneByOneError from error
                return images  # no image that it could start from misleads: it has failed
            return adversarial

        run_foreign(run, run_foolbox)


def _foolbox() -> Any:
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # its GitPython complains about machines that have no git
    with optional_import("attacks of Foolbox are run by foolbox", "foolbox"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Please import `gaussian_filter`", DeprecationWarning)
        import foolbox
    return foolbox
