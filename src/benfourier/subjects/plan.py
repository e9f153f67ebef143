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


KEPT = 2**25 - 2**16  # bytes; larger blocks do not count
Sizes = dict[str, Tensor]  # norm of each image's response, by name of the layer
TRIAL = 3  # images in the trial pass: an odd number, so that other first dimensions are not taken for it


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


def parts_of(module: nn.Module) -> tuple[int, ...]:
    """Returns what tells a module from itself with another part: a trace holds the parts that it was made with."""
    found = list(module.modules())
    own = [value for part in found if part._modules for value in (*part._parameters.values(), *part._buffers.values())]
    return tuple(map(id, [*found, *own]))


def make_plan(subject: "Subject", shape: Sequence[int]) -> Plan:
    """Returns the plan for images of shape (C, H, W).

    The trace is used only if its logits equal the module's. Images enter channels-last on the CPU if the module can
    take them so, since convolutions are faster that way; the numbers that leave a layer are the same set.
    """
    # glibc gives back freed memory beyond twice the largest block seen, and fetches it anew, page by page, in each pass
    torch.empty(KEPT, dtype=torch.uint8)
    low, high = subject.bounds
    noise = torch.rand(TRIAL, *shape, generator=torch.Generator().manual_seed(0))
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
            layout, trial = torch.channels_last, quick
    layers, apart, sizes = _listen_once(subject, runner, trial)
    if usable and layout is torch.channels_last:
        runner = _quicker(subject, runner, trial, sizes)
    name = type(subject.module).__name__
    operations = () if usable else unseen.operations()
    if operations:
        _warn(f"{name} cannot be traced, so its modules are heard but not its functional operations", operations)
    if apart:
        _warn(f"{name} has layers whose first dimension does not count images, so they are not heard", apart)
    return Plan(layers, runner, layout, operations + apart)


def _warn(what: str, which: tuple[str, ...]) -> None:
    names = ", ".join(which[:8]) + (", …" if len(which) > 8 else "")
    warnings.warn(f"{what}: {names}", UnheardWarning, stacklevel=4)


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


def _quicker(subject: "Subject", runner: nn.Module, trial: Tensor, sizes: Sizes) -> nn.Module:
    """The trace with stations if every layer answers as it does without them, or else the runner."""
    with at_rest(subject.module):
        stationed = trace(subject.module, stationed=True)
    try:
        found = {} if stationed is None else _listen_once(subject, stationed, trial)[2]
    except (RuntimeError, TypeError, ValueError, AttributeError, AssertionError, SubjectError):
        return runner
    alike = found.keys() == sizes.keys() and all(
        torch.allclose(found[name], size, rtol=1e-3, atol=1e-3 * float(size.nan_to_num(0, 0, 0).max()), equal_nan=True)
        for name, size in sizes.items()
    )
    return stationed if stationed is not None and alike else runner


def _refuse_probabilities(logits: Tensor) -> None:
    total, slack = logits.double().sum(dim=1), max(1e-4, 4 * torch.finfo(logits.dtype).eps)
    if bool((logits >= 0).all()) and bool(((total - 1).abs() < slack).all()):
        raise SubjectError(
            "the module returns probabilities (each row is non-negative and sums to 1), not logits; "
            "wrap the part before its final soft-max"
        )


def _listen_once(
    subject: "Subject", runner: nn.Module, trial: Tensor
) -> tuple[tuple[Layer, ...], tuple[str, ...], Sizes]:
    """What answers with one row of numbers per image, in firing order, the names of modules that do not, and sizes."""
    found: list[Layer] = []
    apart: list[str] = []
    sizes: Sizes = {}

    def hear(name: str, source: object, response: object) -> None:
        tensor = first_tensor(response)
        module = type(source) if isinstance(source, nn.Module) else None
        if tensor is None or not tensor.is_floating_point():
            return
        if tensor.ndim >= 1 and tensor.shape[0] == len(trial):
            kind = module.__name__ if module else str(source)
            found.append(Layer(name, kind, math.prod(tensor.shape[1:]), is_pass_through(source), module))
            sizes[name] = tensor.detach().reshape(len(trial), -1).float().norm(dim=1).cpu()
        elif module and not is_pass_through(source):
            apart.append(name)

    with torch.no_grad():
        Run(subject.module, runner, hear).forward(trial.clone())  # the module may write into them
    if not [layer for layer in found if layer.name != SOFTMAX]:
        raise SubjectError("no layer of the module fired; it must consist of torch.nn modules that are called")
    return tuple(found), tuple(apart), sizes
