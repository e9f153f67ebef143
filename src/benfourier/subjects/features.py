"""MBF features: |â_n| of every layer's responses, taken as each layer fires."""

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier import kernels, progress
from benfourier.errors import ResponseError, check_choice, check_whole
from benfourier.subjects.hearing import Run, first_tensor
from benfourier.subjects.plan import Layer, Plan
from benfourier.subjects.selection import Selection, select
from benfourier.subjects.stations import Station, walkers
from benfourier.subjects.subject import Subject, check_wrapped
from benfourier.theory.coefficients import Zeros

MEMORY = 256 * 2**20  # bytes


def features(
    subject: Subject,
    images: Tensor,
    orders: int = 16,
    *,
    layers: Selection = None,
    pass_through: bool = False,
    centre: bool = True,
    zeros: Zeros = "drop",
    method: kernels.Method = "auto",
    dtype: Literal["float32", "float64"] = "float32",
    batch: int | None = None,
    memory: int = MEMORY,
    show_progress: bool | None = None,
) -> NDArray[np.floating]:
    """Returns the MBF features (images, layers · orders), layer by layer in firing order.

    Args:
        subject: the classifier to listen to.
        images: floating tensor (N, C, H, W) within the subject's bounds.
        orders: |â_n| is taken for n = 1..orders.
        layers: names, globs or types; None for all.
        pass_through: also layers that only pass numbers on in eval mode.
        centre: subtract the mean of each image's responses first.
        zeros: what becomes of exact zeros after centring: "drop", "count" or "one".
        method: kernel, "auto", "reference", "differentiable" or "fused".
        dtype: of the result; the kernels' own precision is not changed by it.
        batch: images per forward pass; by default as many as fit the memory, 256 at most.
        memory: bytes that the responses of a batch may take.
        show_progress: True or False to force the bar; by default it is drawn on a terminal.
    """
    orders = check_whole("orders", orders)
    check_choice("dtype", dtype, ("float32", "float64"))
    check_whole("memory", memory)
    check_wrapped(subject)
    subject.check(images)
    plan = subject.plan(tuple(images.shape[1:]))
    chosen = select(plan.layers, layers, pass_through=pass_through)
    batch = check_whole("batch", batch) if batch is not None else fitting_batch(plan, memory, subject.dtype.itemsize)
    out = np.empty((len(images), len(chosen) * orders), dtype)
    with progress.bar(len(images), "features", show=show_progress) as advance, torch.inference_mode():
        for start in range(0, len(images), batch):
            part = images[start : start + batch]
            taken = batch_features(subject, plan, part, chosen, orders, centre=centre, zeros=zeros, method=method)[1]
            out[start : start + len(part)] = taken.cpu().numpy()
            advance(len(part))
    return out


def fitting_batch(plan: Plan, memory: int, itemsize: int) -> int:
    """Images per batch whose largest responses, three at a time, fit into memory."""
    largest = max(layer.entries for layer in plan.layers) * itemsize
    return max(1, min(256, memory // (3 * largest)))


def batch_features(
    subject: Subject,
    plan: Plan,
    images: Tensor,
    layers: tuple[Layer, ...],
    orders: int,
    *,
    centre: bool = True,
    zeros: Zeros = "drop",
    method: kernels.Method = "auto",
) -> tuple[Tensor, Tensor]:
    """Returns logits and features of one batch, on the subject's device; gradients flow where they are enabled."""
    kernels.check_options(orders, zeros, method)
    wanted = {layer.name: index for index, layer in enumerate(layers)}
    parts: list[Tensor | None] = [None] * len(layers)

    def hear(name: str, source: object, response: object) -> None:
        index = wanted.get(name)
        if index is None:
            return
        tensor = first_tensor(response)
        assert tensor is not None
        parts[index] = kernels.unchecked_magnitudes(tensor, orders, centre=centre, zeros=zeros, method=method)

    ready = walkers(plan.runner) if method in ("auto", "fused") else {}

    def walk(run: Run, station: Station, x: Tensor, other: Tensor | None) -> Tensor | None:
        walked = ready[station].walk(x, other, orders, centre=centre, zeros=zeros) if station in ready else None
        if walked is None:
            return None
        for step, part in zip(station.steps, walked[1], strict=True):
            index = wanted.get(run.name(step.name))
            if index is not None:
                parts[index] = part
        return walked[0]

    images = images.to(subject.device, subject.dtype)
    entering = subject.normalise(images).clone(memory_format=plan.memory_format)  # the module may write into them
    logits = Run(subject.module, plan.runner, hear, walk).forward(entering)
    silent = [layer.name for layer, part in zip(layers, parts, strict=True) if part is None]
    if silent:
        raise ResponseError(f"layers {silent[:5]} did not fire for this batch, though they did in the trial pass")
    heard = torch.cat([part.to(logits.device) for part in parts if part is not None], dim=1)
    _refuse_nan(heard, layers)
    return logits, heard


def _refuse_nan(features: Tensor, layers: tuple[Layer, ...]) -> None:
    """Raises ResponseError if a magnitude is NaN: its response held NaN or infinity."""
    bad = features.detach().isnan()
    if bool(bad.any()):
        image, column = bad.nonzero()[0].tolist()
        name = layers[column * len(layers) // features.shape[1]].name
        raise ResponseError(
            f"layer {name!r} answered with NaN or infinity for image {image} of the batch; "
            "check the weights and the scaling of the images"
        )
