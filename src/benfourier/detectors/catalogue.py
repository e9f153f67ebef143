"""All detectors by id."""

import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from benfourier.data.examples import Examples
from benfourier.data.labelled import Labelled
from benfourier.detectors.c1c2 import C1C2
from benfourier.detectors.defense_gan import DefenseGAN
from benfourier.detectors.detector import Detector
from benfourier.detectors.kd_bu import KDBU
from benfourier.detectors.lid import LID
from benfourier.detectors.mahalanobis import Mahalanobis
from benfourier.detectors.max_softmax import MaxSoftmax
from benfourier.detectors.mbf import MBF
from benfourier.detectors.method import Method
from benfourier.errors import OptionError, check_choice
from benfourier.subjects.subject import Subject

_known: dict[str, type[Method]] = {
    kind.name: kind for kind in (MBF, MaxSoftmax, KDBU, Mahalanobis, LID, C1C2, DefenseGAN)
}
METHODS: Mapping[str, type[Method]] = MappingProxyType(_known)


def register(kind: type[Method]) -> type[Method]:
    """Adds a method of your own to the catalogue, so that its id works wherever ids do; may stand above the class."""
    if not re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", getattr(kind, "name", "")):
        raise OptionError(f'{kind.__name__} has no id; give it one in kebab-case: name: ClassVar[str] = "my-method"')
    if _known.setdefault(kind.name, kind) is not kind:
        raise OptionError(f"the id {kind.name!r} is taken by {_known[kind.name].__name__}; choose another name")
    return kind


def ids() -> list[str]:
    """Returns the ids of all detectors, each with its variants behind it."""
    return [word for name, kind in METHODS.items() for word in (name, *(f"{name}:{part}" for part in kind.variants))]


def method(name: str, *, preset: str | None = None, **options: Any) -> Method:
    """Returns the method of that id.

    Args:
        name: id of a detector, or of one of its variants, such as "c1c2:c1", which wins over options.
        preset: a named set of options, such as "paper" for mbf; options given beside it win.
        options: of the method.
    """
    check_choice("detector", name, ids())
    name, _, variant = name.partition(":")
    kind = METHODS[name]
    if preset is not None:
        check_choice(f"preset of {name}", preset, kind.presets)
        options = {**kind.presets[preset], **options}
    known = sorted(field.name for field in fields(kind))
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise OptionError(f"{name} has no option {option!r}; its options: {', '.join(known)}{hint}")
    return kind(**{**options, **(kind.variants[variant] if variant else {})})


def fit(
    name: str,
    subject: Subject,
    examples: Examples,
    *,
    clean: Labelled | None = None,
    preset: str | None = None,
    show_progress: bool | None = None,
    foreign: bool = False,
    **options: Any,
) -> Detector:
    """Returns the detector of that id, fitted to examples.

    Args:
        name: id of a detector.
        subject: the classifier to guard.
        examples: clean images with their noisy and adversarial twins.
        clean: labelled clean images beyond the examples, for detectors that use them.
        preset: a named set of options.
        show_progress: True or False to force progress bars; None draws them on a terminal.
        foreign: the examples may have been made with other weights than the subject's.
        options: of the method.
    """
    chosen = method(name, preset=preset, **options)
    return chosen.fit(subject, examples, clean=clean, show_progress=show_progress, foreign=foreign)
