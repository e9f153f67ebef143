"""One forward pass with several ears."""

from collections.abc import Sequence

import torch
from torch import Tensor

from benfourier.detectors.mbf import MagnitudeEar
from benfourier.detectors.method import Ear, Listening
from benfourier.errors import ResponseError
from benfourier.subjects.hearing import Run, first_tensor
from benfourier.subjects.plan import Plan
from benfourier.subjects.selection import select
from benfourier.subjects.stations import Station, walkers
from benfourier.subjects.subject import Subject

INPUT = "input-image"  # name under which a measure hears the images themselves, as they enter the module


def listen(
    subject: Subject, images: Tensor, measures: Sequence[Listening], ids: Sequence[str]
) -> tuple[Tensor, list[Tensor]]:
    """Returns the logits of one batch, and each measure's numbers (images, numbers), all from one forward pass."""
    plan = subject.plan(tuple(images.shape[1:]))
    ears = [measure.ear(ids) for measure in measures]
    wanted: dict[str, list[Ear]] = {}
    for ear, measure in zip(ears, measures, strict=True):
        for name in measure.layers:
            wanted.setdefault(name, []).append(ear)
    silent = set(wanted)

    def hear(name: str, source: object, response: object) -> None:
        tensor = first_tensor(response)
        if name in wanted and tensor is not None:
            silent.discard(name)
            for ear in wanted[name]:
                ear.hear(name, tensor)

    quick = ears[0] if len(ears) == 1 and isinstance(ears[0], MagnitudeEar) else None
    ready = walkers(plan.runner) if quick else {}

    def walk(run: Run, station: Station, x: Tensor, other: Tensor | None) -> Tensor | None:
        walked = quick.walk(ready[station], x, other) if quick and station in ready else None
        if quick is None or walked is None:
            return None
        for step, part in zip(station.steps, walked[1], strict=True):
            name = run.name(step.name)
            silent.discard(name)
            quick.take(name, part)
        return walked[0]

    entering = subject.normalise(images.to(subject.device, subject.dtype))
    entering = entering.clone(memory_format=plan.memory_format)  # the module may write into them
    hear(INPUT, INPUT, entering)
    logits = Run(subject.module, plan.runner, hear, walk).forward(entering)
    if silent:
        raise ResponseError(f"layers {sorted(silent)[:5]} did not fire for this batch; fit the detector again")
    return logits, [finite(ear.numbers(logits), ids) for ear in ears]


def named(plan: Plan, layers: tuple[str, ...] | None, *, pass_through: bool) -> tuple[str, ...]:
    """Returns the names of the layers that a selection means, in firing order; INPUT is first if it is among them.

    Args:
        plan: what fires.
        layers: names, globs or "type:Conv2d", or INPUT; None for all layers, without INPUT.
        pass_through: also layers that only pass numbers on in eval mode.
    """
    others = None if layers is None else [word for word in layers if word != INPUT]
    first = () if layers is None or INPUT not in layers else (INPUT,)
    if others == []:
        return first
    return first + tuple(layer.name for layer in select(plan.layers, others, pass_through=pass_through))


def finite(numbers: Tensor, ids: Sequence[str]) -> Tensor:
    """Returns the numbers as float64 on the CPU, or raises ResponseError if one of them is NaN or infinite."""
    assert numbers.ndim == 2
    assert len(numbers) == len(ids)
    bad = ~numbers.detach().isfinite().all(1)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ResponseError(f"image {ids[row]!r} gives NaN or infinity; check the image and the network's weights")
    return numbers.to("cpu", torch.float64)
