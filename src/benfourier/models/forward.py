"""One forward pass, observed by several observers, and the size of batches that fit into memory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from benfourier import progress
from benfourier.errors import ActivationError, check_whole
from benfourier.models.classifier import Classifier
from benfourier.models.layers import INPUT, SOFTMAX, LayerRecorder, warn_unobserved
from benfourier.models.module import eval_mode, logits_of, softmax

__all__ = ["INPUT", "MEMORY", "SOFTMAX", "Observation", "Observer", "batch_size", "logits_in_batches", "observe"]

MEMORY = 256 * 2**20  # bytes that the activations of a batch may take
LARGEST_BATCH = 256


class Observer(Protocol):
    """Reduces the activations of some layers as they appear. It holds no state of a pass."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers to observe; INPUT and SOFTMAX are names too."""

    def reduce(self, layer: str, activation: Tensor) -> Tensor:
        """Returns what is needed of an activation (images, ...); the activation is valid during the call only."""


@dataclass(frozen=True, eq=False)
class Observation:
    """Result of one forward pass: the logits, and for each observer its reduced activations by layer."""

    logits: Tensor
    values: tuple[Mapping[str, Tensor], ...]


def observe(classifier: Classifier, images: Tensor, observers: Sequence[Observer]) -> Observation:
    """Returns the logits of one batch and what each observer made of its layers, all from one forward pass.

    Images (N, C, H, W) are not checked here. Gradients flow where they are enabled.
    """
    layout = classifier.layer_list(tuple(images.shape[1:])).memory_format
    values: list[dict[str, Tensor]] = [{} for _ in observers]
    names = [frozenset(observer.layers) for observer in observers]

    def record(layer: str, _: object, activation: Tensor) -> None:
        if len(activation) != len(images):  # some images went another way
            return
        for observer, own, reduced in zip(observers, names, values, strict=True):
            if layer in own:
                reduced[layer] = observer.reduce(layer, activation)

    images = classifier.prepare(images, layout)
    record(INPUT, None, images)
    # hooks and the function mode take a few per cent of a small network's pass
    recorder = LayerRecorder(classifier.module, record) if observers else nullcontext()
    with eval_mode(classifier.module), recorder:
        output = classifier.module(images)
    logits = logits_of(output, len(images))
    record(SOFTMAX, None, softmax(logits))
    missing = sorted({layer for own, reduced in zip(names, values, strict=True) for layer in own - reduced.keys()})
    if missing:
        problem = f"layers {missing[:5]} did not fire for this batch, though they did before"
        raise ActivationError(f"{problem}; observe layers that every image passes, or fit the detector again")
    return Observation(logits, tuple(values))


def leave_out_unsteady_layers(
    classifier: Classifier, images: Sequence[Tensor], *, show_progress: bool | None = None
) -> None:
    """Takes layers that do not fire for every image, alone and in a batch, out of the classifier's list, and warns.

    Images (N, C, H, W) are of one shape in each item. Only a module that reads numbers of its tensors is run.
    """
    shapes = {tuple(part.shape[1:]) for part in images}
    for shape in shapes:
        layer_list = classifier.layer_list(shape)
        if not layer_list.may_branch:
            continue
        parts = [part for part in images if tuple(part.shape[1:]) == shape]
        steady = {layer.name for layer in layer_list.layers}
        for part in parts:
            for size in (1, None):
                for rows in batch_slices(classifier, part, size, label="control flow", show_progress=show_progress):
                    steady &= _firing_layers(classifier, part[rows], layer_list.memory_format) | {SOFTMAX}
        unsteady = [layer.name for layer in layer_list.layers if layer.name not in steady]
        if unsteady:
            classifier.leave_out(shape, unsteady)
            warn_unobserved(classifier.module, "that do not fire for every image", unsteady)


def _firing_layers(classifier: Classifier, images: Tensor, layout: torch.memory_format) -> set[str]:
    """Names of the layers that fire for all images of a batch."""
    names = set()

    def record(layer: str, _: object, activation: Tensor) -> None:
        if len(activation) == len(images):
            names.add(layer)

    with torch.no_grad(), eval_mode(classifier.module), LayerRecorder(classifier.module, record):
        classifier.module(classifier.prepare(images, layout))
    return names


def batch_size(classifier: Classifier, shape: Sequence[int], *, gradients: bool = False, memory: int = MEMORY) -> int:
    """Returns how many images of shape (C, H, W) fit into that many bytes of memory at once, 256 at most.

    With gradients, every activation and its gradient are held, otherwise the largest three activations only.
    """
    sizes = [layer.entries for layer in classifier.layer_list(tuple(shape)).layers]
    entries = 2 * sum(sizes) if gradients else 3 * max(sizes)
    return max(1, min(LARGEST_BATCH, memory // (entries * classifier.dtype.itemsize)))


def logits_in_batches(classifier: Classifier, images: Tensor) -> Tensor:
    """Returns the logits of any number of images, (N, classes), without gradients."""
    with torch.no_grad():
        parts = torch.split(images, batch_size(classifier, images.shape[1:]))
        return torch.cat([classifier.logits(part).cpu() for part in parts])


def batch_slices(
    classifier: Classifier, images: Tensor, batch: int | None, *, label: str, show_progress: bool | None
) -> Iterator[slice]:
    """Yields the slice of each batch in turn, by default of as many images as fit into memory, with a progress bar."""
    size = check_whole("batch", batch) if batch is not None else batch_size(classifier, images.shape[1:])
    with progress.bar(len(images), label, show=show_progress) as advance:
        for start in range(0, len(images), size):
            part = slice(start, min(start + size, len(images)))
            yield part
            advance(part.stop - part.start)
