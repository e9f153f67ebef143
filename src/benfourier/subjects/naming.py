"""Subjects by name: a network of the zoo, or a user's own as `package.module:factory`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from difflib import get_close_matches
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from torch import nn

from benfourier.errors import BenfourierError, InputError, OptionError, SubjectError, check_whole
from benfourier.subjects.subject import Subject
from benfourier.subjects.weights import fill, load_weights
from benfourier.subjects.zoo import ZOO, Entry

LOOK = tuple(field.name for field in fields(Subject) if field.init and field.name not in ("module", "classes"))


def open_subject(
    model: str,
    *,
    weights: Path | str | None = None,
    digest: str | None = None,
    classes: int | Sequence[str] | None = None,
    pretrained: bool = True,
    **look: Any,
) -> Subject:
    """Returns the subject that a word names, as on a command line.

    Args:
        model: an id of the zoo; or `package.module:factory`, also from the current folder, where calling the factory
            returns a module or a Subject.
        weights: a safetensors file with the module's weights.
        digest: SHA-256 that this file must have.
        classes: how many there are, given to the factory; or their names, given to the Subject, and their number to
            the factory if it takes it.
        pretrained: without weights=, use those that come with a network of the zoo, if any do.
        look: keywords of Subject, instead of the zoo network's own: size, channels, mean, std, bounds, resize.
    """
    unknown = [name for name in look if name not in LOOK]
    if unknown:
        raise OptionError(f"{unknown[0]} is no option of a subject; allowed: classes, {', '.join(LOOK)}")
    if digest is not None and weights is None:
        raise OptionError("digest is given without weights; it is the SHA-256 of the weights' file")
    names = None if classes is None or isinstance(classes, int) else tuple(classes)
    count = classes if isinstance(classes, int) else None if names is None else len(names)
    subject = _of_zoo(ZOO[model], count) if model in ZOO else _of_user(model, count, needed=names is None)
    if weights is not None:
        load_weights(subject.module, weights, digest)
    elif pretrained and model in ZOO:
        _fill_pretrained(ZOO[model], subject.module, count)
    if names is not None:
        look["classes"] = names
    return replace(subject, **look) if look else subject


def _of_zoo(entry: Entry, classes: int | None) -> Subject:
    # some factories make that many classes only, and take no number
    made = _made(entry.factory, entry.name, None if classes == entry.classes else classes)
    assert isinstance(made, nn.Module)
    mean, std = entry.scaling
    return Subject(made, mean=mean, std=std, size=entry.size, channels=entry.channels)


def _fill_pretrained(entry: Entry, module: nn.Module, classes: int | None) -> None:
    """Gives a network of the zoo the weights that come with it, if any do."""
    if entry.weights is None:
        return
    if classes not in (None, entry.classes):
        raise OptionError(
            f"the weights that come with {entry.name} are for {entry.classes} classes, not {classes}; "
            "leave classes out, or give weights of your own"
        )
    fill(module, entry.weights(), entry.name)


def _of_user(model: str, classes: int | None, *, needed: bool) -> Subject:
    """What a user's factory returns, as a subject; a number of classes that is not needed may be left unused."""
    with _current_folder():
        factory = _factory(model)
        made = _made(factory, model, classes if needed or _takes_classes(factory) else None)
    if isinstance(made, nn.Module):
        return Subject(made)
    if not isinstance(made, Subject):
        raise SubjectError(f"{model} returned a {type(made).__name__}; it must return a torch.nn.Module or a Subject")
    return made


def _factory(model: str) -> Callable[..., object]:
    """What a text such as "package.module:factory" names."""
    home, colon, name = model.partition(":")
    if not colon or not name or not all(part.isidentifier() for part in (*home.split("."), *name.split("."))):
        near = get_close_matches(model, ZOO, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"model {model!r} is no network of the zoo and not of the form package.module:factory; "
            f"in the zoo: {', '.join(ZOO)}{hint}"
        )
    try:
        found: Any = import_module(home)
    # a user's file can fail in any way when it is run
    except (Exception, SystemExit) as error:
        raise InputError(
            f"module {home!r} cannot be imported ({_told(error)}); check its name, and that it is installed or below "
            "the current folder"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            near = get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "; check its name"
            raise InputError(f"module {home!r} has no {name!r}{hint}")
        found = getattr(found, part)
    if not callable(found) or isinstance(found, nn.Module):
        raise InputError(f"{model} is a {type(found).__name__}; it must be a function that returns a module")
    return found  # type: ignore[no-any-return]


def _made(factory: Callable[..., object], name: str, classes: int | None) -> object:
    """What the factory returns; anything that it raises becomes a SubjectError."""
    options = {} if classes is None else {"classes": check_whole("classes", classes, least=2)}
    if options and not _takes_classes(factory):
        raise OptionError(f"classes is {classes}, but {name} takes no such option; leave it out")
    try:
        return factory(**options)
    except BenfourierError:
        raise
    except Exception as error:
        raise SubjectError(f"{name} failed: {_told(error)}; it must return a module when called so") from error


def _takes_classes(factory: Callable[..., object]) -> bool:
    """True if the factory can be called with classes=."""
    try:
        parameters = signature(factory).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return "classes" in parameters or any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def _current_folder() -> Iterator[None]:
    """Lets modules of the current folder be imported while the block runs, as `python -m` would."""
    here = str(Path.cwd())
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added and here in sys.path:
            sys.path.remove(here)
