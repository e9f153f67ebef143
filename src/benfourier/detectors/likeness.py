"""Whether a subject is the one that a file's detector was fitted to."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

from torch import nn

from benfourier.errors import InputError, StoreError, SubjectError
from benfourier.subjects.subject import Subject
from benfourier.subjects.weights import digest_of_weights

LOOK = ("bounds", "mean", "std", "size", "channels", "resize", "classes")  # how images become what a network takes


def subject_in(path: str | PathLike[str], manifest: Mapping[str, Any], module: nn.Module) -> Subject:
    """Returns a module as the subject that a manifest describes; whether it is the same one is not yet checked."""
    try:
        look: dict[str, Any] = {name: manifest["subject"][name] for name in LOOK}
        return Subject(module, **look)
    except (InputError, LookupError, TypeError) as error:
        raise StoreError(f"{path}: it does not tell how images look ({error}); fit it again") from error


def look_of(subject: Subject) -> dict[str, Any]:
    """Returns what makes a subject the same one: its weights, layers, and the images it takes."""
    return {
        "weights": digest_of_weights(subject.module),
        "layers": subject.layers(pass_through=True),
        "bounds": list(subject.bounds),
        "mean": _list(subject.mean),
        "std": _list(subject.std),
        "size": _list(subject.height_width),
        "channels": subject.known_channels,
        "resize": subject.resize,
        "classes": _list(subject.classes),
    }


def check_subject(path: str | PathLike[str], manifest: Mapping[str, Any], subject: Subject) -> None:
    """Raises StoreError unless the subject is the one that a file's detector was fitted to."""
    told = _difference(manifest["subject"], tuple(manifest["summary"]["shape"]), subject)
    if told:
        raise StoreError(f"{path}: it was fitted to another network: {told}; load the network it was fitted to")


def _difference(look: Mapping[str, Any], shape: tuple[int, ...], subject: Subject) -> str | None:
    """What tells a subject from the one that was fitted; None if nothing does."""
    try:
        subject.plan(shape)
    except SubjectError as error:
        return f"this one does not take images of shape {shape} ({error})"
    found = look_of(subject)
    gone, new = (
        [n for n in one["layers"] if n not in other["layers"]] for one, other in ((look, found), (found, look))
    )
    if gone or new or found["layers"] != look["layers"]:
        parts = [f"{what} {', '.join(names[:3])}" for what, names in (("lacks", gone), ("also has", new)) if names]
        return f"this one {' and '.join(parts) or 'has its layers in another order'}"
    if found["weights"] != look["weights"]:
        return f"the weights of this one have the digest {found['weights'][:12]}…, not {look['weights'][:12]}…"
    for name in ("bounds", "mean", "std"):
        if found[name] != look[name]:
            return f"the {name} of this one is {found[name]}, not {look[name]}"
    return None


def _list(values: Any) -> list[Any] | None:
    return None if values is None else list(values)
