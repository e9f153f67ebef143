"""Whether two classifiers are the same one: a digest for cache keys, and a description that files hold."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

from benfourier.errors import ClassifierError, InputError, StoreError
from benfourier.models.classifier import Classifier
from benfourier.models.image_formats import IMAGE_OPTIONS
from benfourier.models.weights import weights_digest
from benfourier.store.artifact import FilePath, digest_of

NOISE_IMAGES = 3


def classifier_digest(classifier: Classifier, shape: tuple[int, ...]) -> str:
    """Returns a digest of all that decides a classifier's logits for images (C, H, W) to the last bit.

    It covers the weights, the `repr` of the module, bounds, mean and std, the names of the layers, and the logits of
    three fixed noise images, which tell code and attributes apart that no weight holds. It also covers what computes
    them: the version of torch, the device, the dtype, and on the CPU its instructions and the number of threads, which
    split sums. The version of benfourier is not part of it: caches count revisions of their own.
    """
    device = classifier.device.type
    machine = [version("torch"), device, str(classifier.dtype)]
    if device == "cpu":
        machine += [torch.backends.cpu.get_cpu_capability(), str(torch.get_num_threads())]
    with torch.no_grad():
        logits = classifier.logits(classifier.noise(NOISE_IMAGES, shape))
    scaling = repr((classifier.bounds, classifier.mean, classifier.std))
    module = (weights_digest(classifier.module), repr(classifier.module))
    layers = classifier.layer_list(shape).names
    return digest_of((*machine, scaling, *module, *layers, logits.double().cpu().numpy()))


def describe_classifier(classifier: Classifier) -> dict[str, Any]:
    """Returns what a file holds to know a classifier again: its weights' digest, layers, and the images it takes."""
    description = {"weights": weights_digest(classifier.module), "layers": list(classifier.layer_list().names)}
    for name in (*IMAGE_OPTIONS, "classes"):
        value = getattr(classifier, name)
        description[name] = value if value is None or name in ("channels", "resize") else list(value)
    return description


def classifier_from_description(path: FilePath, description: Mapping[str, Any], module: nn.Module) -> Classifier:
    """Returns a module as the classifier that a file describes; whether it is the same one is not yet checked."""
    try:
        return Classifier(module, **{name: description[name] for name in (*IMAGE_OPTIONS, "classes")})
    except (InputError, LookupError, TypeError) as error:
        raise StoreError(f"{path}: its description of the images is not usable ({error}); fit it again") from error


def check_same_classifier(
    path: FilePath, description: Mapping[str, Any], shape: tuple[int, ...], classifier: Classifier
) -> None:
    """Raises StoreError unless the classifier is the one that a file describes; shape is (C, H, W) of its images."""
    try:
        classifier.layer_list(shape)
    except ClassifierError as error:
        difference = f"this one does not take images of shape {shape} ({error})"
    else:
        difference = _difference(description, describe_classifier(classifier))
    if difference:
        raise StoreError(f"{path}: it was fitted to another network: {difference}; load the network it was fitted to")


def _difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first difference between the descriptions of two classifiers; empty if there is none."""
    if now["layers"] != then["layers"]:
        lists = {"lacks": (then["layers"], now["layers"]), "also has": (now["layers"], then["layers"])}
        names = {what: [name for name in these if name not in others] for what, (these, others) in lists.items()}
        parts = [f"{what} {', '.join(some[:3])}" for what, some in names.items() if some]
        return f"this one {' and '.join(parts) or 'has its layers in another order'}"
    if now["weights"] != then["weights"]:
        return f"the weights of this one have the digest {now['weights'][:12]}…, not {then['weights'][:12]}…"
    for name in ("bounds", "mean", "std"):
        if now[name] != then[name]:
            return f"the {name} of this one is {now[name]}, not {then[name]}"
    return ""
