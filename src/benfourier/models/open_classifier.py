"""Classifiers by name: a network of the zoo, or a user's own as `package.module:factory`."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benfourier.errors import BenfourierError, ClassifierError, InputError, OptionError, check_whole, near_word
from benfourier.models.classifier import Classifier
from benfourier.models.device import check_device
from benfourier.models.image_formats import IMAGE_OPTIONS
from benfourier.models.training import TrainingOptions
from benfourier.models.weights import fill_weights, load_weights
from benfourier.models.zoo import ZOO, ZooEntry
from benfourier.options import check_known_options


def open_classifier(
    model: str,
    *,
    weights: Path | str | None = None,
    digest: str | None = None,
    classes: int | Sequence[str] | None = None,
    pretrained: bool = True,
    seed: int | None = None,
    device: str | torch.device | None = None,
    **image_options: Any,
) -> Classifier:
    """Returns the classifier that a word names, as on a command line.

    Args:
        model: an id of the zoo; or `package.module:factory`, whose code is run, also from the current folder, and where
            calling the factory returns a module or a Classifier.
        weights: a safetensors file with the module's weights.
        digest: SHA-256 that this file must have.
        classes: how many there are, given to the factory; or their names, given to the Classifier, and their number to
            the factory if it takes it.
        pretrained: without weights=, use those that come with a network of the zoo, if any do.
        seed: of the weights that the factory draws; None draws them from torch's own generator.
        device: where the network runs, such as "cuda"; None leaves it where the factory made it, usually on the CPU.
        image_options: keywords of Classifier, instead of the zoo network's own: size, channels, mean, std, bounds,
            resize.
    """
    check_known_options("a classifier", image_options, ["classes", *IMAGE_OPTIONS])
    if digest is not None and weights is None:
        raise OptionError("digest is given without weights; it is the SHA-256 of the weights' file")
    place = None if device is None else check_device(device)  # before seconds of loading
    names = None if classes is None or isinstance(classes, int) else tuple(classes)
    count = classes if isinstance(classes, int) else None if names is None else len(names)
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        if model in ZOO:
            classifier = _of_zoo(ZOO[model], count, pretrained=pretrained and weights is None)
        else:
            classifier = _of_user(model, count, needed=names is None)
    if weights is not None:
        load_weights(classifier.module, weights, digest)
    if names is not None:
        image_options["classes"] = names
    classifier = replace(classifier, **image_options) if image_options else classifier
    return classifier if place is None else classifier.to(place)


def training_options(model: str, *, flips: bool | None = None, **options: Any) -> TrainingOptions:
    """Returns how to train a network that `open_classifier` knows; `options` are other fields of TrainingOptions.

    Without flips, images are mirrored if the network's entry in the zoo says so.
    """
    if flips is None:
        flips = model in ZOO and ZOO[model].flips
    return TrainingOptions(flips=flips, **options)


def _of_zoo(entry: ZooEntry, classes: int | None, *, pretrained: bool) -> Classifier:
    # some factories make that many classes only, and take no number
    module = _call(entry.factory, entry.name, None if classes == entry.classes else classes)
    assert isinstance(module, nn.Module)
    if pretrained and entry.weights is not None:
        if classes not in (None, entry.classes):
            problem = f"the weights that come with {entry.name} are for {entry.classes} classes, not {classes}"
            raise OptionError(f"{problem}; leave classes out, or give weights of your own")
        fill_weights(module, entry.weights(), entry.name)
    mean, std = entry.scaling
    return Classifier(module, mean=mean, std=std, size=entry.size, channels=entry.channels)


def import_model(model: str) -> None:
    """Imports the module of a user's network, so that detectors and attacks that it registers are known."""
    if model not in ZOO:
        with _current_folder():
            _factory(model)


@contextmanager
def _current_folder() -> Iterator[None]:
    """Modules of the current folder can be imported in the block, as with `python -m`."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.path.remove(here)


def _of_user(model: str, classes: int | None, *, needed: bool) -> Classifier:
    """What a user's factory returns, as a classifier; a number of classes that is not needed may be left unused."""
    with _current_folder():
        factory = _factory(model)
        result = _call(factory, model, classes if needed or _takes_classes(factory) else None)
    if not isinstance(result, nn.Module | Classifier):
        problem = f"{model} returned a {type(result).__name__}"
        raise ClassifierError(f"{problem}; it must return a torch.nn.Module or a Classifier")
    return Classifier(result) if isinstance(result, nn.Module) else result


def _factory(model: str) -> Callable[..., object]:
    """What a text such as "package.module:factory" names."""
    home, _, name = model.partition(":")
    if not all(part.isidentifier() for part in (*home.split("."), *name.split("."))):
        problem = f"model {model!r} is no network of the zoo and not of the form package.module:factory"
        raise InputError(f"{problem}; in the zoo: {', '.join(ZOO)}{near_word(model, ZOO)}")
    try:
        target: Any = import_module(home)
    except (Exception, SystemExit) as error:  # a user's file can fail in any way when it is run
        problem = f"module {home!r} cannot be imported ({type(error).__name__}: {error})"
        raise InputError(f"{problem}; check its name, and that it is installed or below the current folder") from error
    for part in name.split("."):
        if not hasattr(target, part):
            raise InputError(f"module {home!r} has no {name!r}{near_word(part, dir(target), '; check its name')}")
        target = getattr(target, part)
    if not callable(target) or isinstance(target, nn.Module):
        raise InputError(f"{model} is a {type(target).__name__}; it must be a function that returns a module")
    return target  # type: ignore[no-any-return]


def _call(factory: Callable[..., object], name: str, classes: int | None) -> object:
    """What the factory returns; anything that it raises becomes a ClassifierError."""
    options = {} if classes is None else {"classes": check_whole("classes", classes, least=2)}
    if options and not _takes_classes(factory):
        raise OptionError(f"classes is {classes}, but {name} takes no such option; leave it out")
    try:
        return factory(**options)
    except BenfourierError:
        raise
    except Exception as error:
        problem = f"{name} failed: {type(error).__name__}: {error}"
        raise ClassifierError(f"{problem}; it must return a module when called so") from error


def _takes_classes(factory: Callable[..., object]) -> bool:
    try:
        parameters = signature(factory).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
    return "classes" in parameters or any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
