"""Responses of every layer to images, and the generalized Gaussian distributions that fit them best."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.kernels.layout import rows_of
from benfourier.subjects.features import MEMORY, fitting_batch
from benfourier.subjects.hearing import Run, first_tensor
from benfourier.subjects.plan import Layer
from benfourier.subjects.selection import select
from benfourier.subjects.subject import Subject
from benfourier.theory.many_fits import fit_rows

Floats = NDArray[np.float64]
ENTRIES = 512  # of a response that a fit looks at


@dataclass(frozen=True, eq=False)
class Fitted:
    """What is known of the responses of each image (rows) in each layer (columns).

    Args:
        shapes: of the best fit; NaN where a response is constant.
        distances: Kolmogorov-Smirnov distance D to it.
        offsets: |mean| / standard deviation.
    """

    shapes: Floats
    distances: Floats
    offsets: Floats


def layers_of(subject: Subject, images: Tensor) -> tuple[Layer, ...]:
    """Returns the layers that mbf listens to by itself."""
    return select(subject.plan(tuple(images.shape[1:])).layers, None, pass_through=False)


def fitted(subject: Subject, images: Tensor, *, seed: int = 0) -> Fitted:
    """Returns the fits to every image's responses, each to at most ENTRIES of them, the same for all images."""
    heard = _heard(subject, images, seed)
    found = [_fit(rows) for rows in heard]
    return Fitted(*(np.stack(column, axis=1) for column in zip(*found, strict=True)))


def _heard(subject: Subject, images: Tensor, seed: int) -> list[NDArray[np.float32]]:
    """Some entries of each layer's responses, (images, entries) per layer."""
    subject.check(images)
    plan, layers = subject.plan(tuple(images.shape[1:])), layers_of(subject, images)
    random = np.random.default_rng(seed)
    chosen = {layer.name: _places(layer.entries, random) for layer in layers}
    taken: dict[str, list[Tensor]] = {layer.name: [] for layer in layers}

    def hear(name: str, source: object, response: object) -> None:
        tensor = first_tensor(response)
        if name in taken and tensor is not None:
            taken[name].append(rows_of(tensor)[:, chosen[name]].cpu())

    with torch.inference_mode():
        for part in torch.split(images, fitting_batch(plan, MEMORY, subject.dtype.itemsize)):
            entering = subject.normalise(part.to(subject.device, subject.dtype))
            Run(subject.module, plan.runner, hear).forward(entering.clone(memory_format=plan.memory_format))
    return [torch.cat(taken[layer.name]).double().numpy() for layer in layers]


def _places(entries: int, random: np.random.Generator) -> Tensor:
    few = min(entries, ENTRIES)
    return torch.from_numpy(np.sort(random.choice(entries, few, replace=False)))


def _fit(rows: NDArray[np.float32]) -> tuple[Floats, Floats, Floats]:
    """Shapes, distances and offsets of one layer's rows."""
    spread = rows.std(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        offsets = np.where(spread > 0, np.abs(rows.mean(axis=1)) / spread, np.nan)
    fits = fit_rows(rows)
    sure = np.flatnonzero(fits.found)
    distances = np.full(len(rows), np.nan)
    ordered = np.sort(rows, axis=1)
    below = fits.cdf(ordered)
    steps = np.arange(rows.shape[1] + 1) / rows.shape[1]
    gaps = np.maximum(np.abs(below - steps[1:]), np.abs(below - steps[:-1])).max(axis=1)
    distances[sure] = gaps[sure]
    return fits.shapes, distances, offsets
