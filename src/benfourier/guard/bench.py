"""How long a network takes: alone, with the features of its layers, and behind a guard."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from benfourier.detectors.mbf import features
from benfourier.errors import InputError, check_threads, check_whole
from benfourier.guard.guard import Guard
from benfourier.metrics.timing import median_seconds
from benfourier.models.classifier import Classifier


@dataclass(frozen=True)
class Timing:
    """Times of one network on this machine: medians of "network", "with features" and "behind the guard"."""

    ms_per_image: dict[str, float]
    layers: int  # that were observed
    activations: int  # entries of these layers per image
    threads: int  # that torch used


def bench(
    classifier: Classifier,
    guard: Guard | None = None,
    *,
    batch: int = 8,
    rounds: int = 11,
    threads: int | None = None,
    show_progress: bool | None = None,
) -> Timing:
    """Returns how long a network takes alone, with the features of all its layers, and behind a guard.

    Images are noise, which takes as long as photographs.

    Args:
        classifier: the network, which knows the shape of its images.
        guard: of this network; None leaves it out.
        batch: images at once.
        rounds: in which all take turns, after one that is not counted.
        threads: that torch may use; None leaves them as they are.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    check_whole("batch", batch)
    check_whole("rounds", rounds)
    if threads is not None:
        torch.set_num_threads(check_threads(threads))
    try:
        images = classifier.noise(batch)
    except RuntimeError as error:  # torch's word for too little memory
        reason = str(error).splitlines()[0]
        raise InputError(f"{batch} images do not fit the memory ({reason}); give fewer or smaller ones") from error
    calls: dict[str, Callable[[], object]] = {
        "network": lambda: classifier.logits(images).cpu(),  # waits for a GPU
        "with features": lambda: features(classifier, images, batch=batch, show_progress=False),
    }
    if guard is not None:
        calls["behind the guard"] = lambda: guard.check(images, batch=batch, show_progress=False)
    with torch.no_grad():
        seconds = median_seconds(calls, rounds, show_progress=show_progress)
    layers = classifier.layers()
    return Timing(
        ms_per_image={name: 1000 * value / batch for name, value in seconds.items()},
        layers=len(layers),
        activations=sum(layer.entries for layer in layers),
        threads=torch.get_num_threads(),
    )
