"""What fires in a module, in which order: found by tracing it and by one trial forward pass."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from benfourier.errors import SubjectError
from benfourier.subjects.hearing import SOFTMAX, Run, at_rest, first_tensor, logits_of
from benfourier.subjects.leaves import is_pass_through
from benfourier.subjects.tracing import Unseen, trace

if TYPE_CHECKING:
    from benfourier.subjects.subject import Subject


class UnheardWarning(UserWarning):
    """Some operations of a module cannot be listened to."""


@dataclass(frozen=True)
class Layer:
    """One place where a tap listens.

    Attributes:
        name: module path, or `path.function()` for a functional operation; `#2` marks a second firing.
        kind: name of the module's class or of the function.
        entries: numbers in one image's response.
        pass_through: it only passes numbers on in eval mode.
        module_type: the module's class, None for functions and the soft-max.
    """

    name: str
    kind: str
    entries: int
    pass_through: bool = False
    module_type: type[nn.Module] | None = None


@dataclass(frozen=True)
class Plan:
    """How to run a module while listening, and what will be heard.

    Attributes:
        layers: everything that fires, in order; the soft-max is last.
        runner: the module, or its trace with ears behind functional operations.
        memory_format: layout in which images enter.
        unheard: operations that cannot be listened to.
    """

    layers: tuple[Layer, ...]
    runner: nn.Module
    memory_format: torch.memory_format
    unheard: tuple[str, ...]


def make_plan(subject: "Subject", shape: Sequence[int]) -> Plan:
    """Returns the plan for images of shape (C, H, W).

    The trace is used only if its logits equal the module's. Images enter channels-last on the CPU if the module can
    take them so, since convolutions are faster that way; the numbers that leave a layer are the same set.
    """
    low, high = subject.bounds
    noise = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    trial = subject.normalise((low + (high - low) * noise).to(subject.device, subject.dtype))
    with at_rest(subject.module), torch.no_grad(), Unseen(subject.module) as unseen:
        expected = _logits(subject.module, trial)
    _refuse_probabilities(expected)
    with at_rest(subject.module), torch.no_grad():
        traced = trace(subject.module)
        usable = traced is not None and _agrees(traced, trial, expected)
        runner: nn.Module = traced if traced is not None and usable else subject.module
        layout = torch.contiguous_format
        quick = trial.contiguous(memory_format=torch.channels_last)
        if trial.device.type == "cpu" and _agrees(runner, quick, expected):
            layout = torch.channels_last
    unheard = () if usable else unseen.operations()
    layers = _listen_once(subject, runner, trial.contiguous(memory_format=layout))
    if unheard:
        warnings.warn(
            f"{type(subject.module).__name__} cannot be traced, so its modules are heard but not "
            f"{len(unheard)} functional operations: {', '.join(unheard[:8])}{', …' if len(unheard) > 8 else ''}",
            UnheardWarning,
            stacklevel=3,
        )
    return Plan(layers, runner, layout, unheard)


def _logits(module: nn.Module, images: Tensor) -> Tensor:
    return logits_of(module(images.clone()), len(images))


def _agrees(runner: nn.Module, images: Tensor, expected: Tensor) -> bool:
    """True if the runner takes the images and gives the expected logits up to rounding."""
    try:
        found = _logits(runner, images)
    except (RuntimeError, TypeError, ValueError, AttributeError, SubjectError):
        return False
    slack = 1e-3 * float(expected.nan_to_num(0, 0, 0).abs().max())
    return found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=slack, equal_nan=True)


def _refuse_probabilities(logits: Tensor) -> None:
    total = logits.double().sum(dim=1)
    if bool((logits >= 0).all()) and bool(((total - 1).abs() < 1e-4).all()):
        raise SubjectError(
            "the module returns probabilities (each row is non-negative and sums to 1), not logits; "
            "wrap the part before its final soft-max"
        )


def _listen_once(subject: "Subject", runner: nn.Module, trial: Tensor) -> tuple[Layer, ...]:
    """Everything that answers with one row of numbers per image, in firing order."""
    found: list[Layer] = []

    def hear(name: str, source: object, response: object) -> None:
        tensor = first_tensor(response)
        if tensor is not None and tensor.ndim >= 1 and len(tensor) == len(trial) and tensor.is_floating_point():
            kind = type(source).__name__ if isinstance(source, nn.Module) else str(source)
            module = type(source) if isinstance(source, nn.Module) else None
            entries = math.prod(tensor.shape[1:])
            found.append(Layer(name, kind, entries, is_pass_through(source), module))

    Run(subject.module, runner, hear).forward(trial)
    if not [layer for layer in found if layer.name != SOFTMAX]:
        raise SubjectError("no layer of the module fired; it must consist of torch.nn modules that are called")
    return tuple(found)
