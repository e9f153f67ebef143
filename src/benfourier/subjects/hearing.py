"""One forward pass with someone listening: hooks on, forward, hooks off."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from benfourier.errors import SubjectError
from benfourier.subjects.leaves import leaves

SOFTMAX = "soft-max"
Hear = Callable[[str, object, object], None]  # name of the layer, its module or function, its response
Walk = Callable[["Run", Any, Tensor, Tensor | None], Tensor | None]  # a station's way, or None to go it step by step

_stage = threading.local()  # the run that this thread is in: hooks of other threads' runs stay silent


class Reporter(nn.Module):
    """A part of a trace that hands on the responses of some modules by itself: they need no hook."""

    def __init__(self, reported: list[nn.Module]) -> None:
        super().__init__()
        self.reported = tuple(reported)  # no list of modules, so they are not its children


class Run:
    """One forward pass of a module, every layer's response handed on as it fires.

    Args:
        module: the module whose leaves are hooked.
        runner: the module itself, or its trace.
        hear: called with each response.
        walk: takes a station of the trace at once, if it can.
    """

    def __init__(self, module: nn.Module, runner: nn.Module, hear: Hear, walk: Walk | None = None) -> None:
        self._module, self._runner, self._hear = module, runner, hear
        self.walk = walk
        self._reported = {m for part in runner.children() if isinstance(part, Reporter) for m in part.reported}
        self._fired: Counter[str] = Counter()

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits; nothing is left hooked, even if the forward pass or a listener fails."""
        handles: list[RemovableHandle] = []
        outer = getattr(_stage, "run", None)
        try:
            for name, leaf in leaves(self._module):
                if leaf not in self._reported:
                    handles.append(leaf.register_forward_hook(self._hook(name)))
            _stage.run = self
            with at_rest(self._module):
                logits = logits_of(self._runner(images), len(images))
            self.fire(SOFTMAX, SOFTMAX, soft_max(logits))
            return logits
        finally:
            _stage.run = outer
            for handle in handles:
                handle.remove()

    def fire(self, name: str, source: object, response: object) -> None:
        """Hands a response to the listener, under the name of this firing."""
        self._hear(self.name(name), source, response)

    def name(self, name: str) -> str:
        """Counts one firing and returns the name that it goes by."""
        self._fired[name] += 1
        times = self._fired[name]
        return name if times == 1 else f"{name}#{times}"

    def _hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(leaf: nn.Module, inputs: object, response: object) -> None:
            if getattr(_stage, "run", None) is self:
                self.fire(name, leaf, response)

        return hook


def this_run() -> Run | None:
    """The run that this thread is in, if any."""
    run = getattr(_stage, "run", None)
    return run if isinstance(run, Run) else None


def report(name: str, source: object, response: object) -> None:
    """Hands on a response that no hook sees, if this thread is in a run."""
    run = this_run()
    if run is not None:
        run.fire(name, source, response)


def first_tensor(response: object) -> Tensor | None:
    """The tensor in a response: itself, or the first of a tuple, list or mapping."""
    if isinstance(response, Tensor):
        return response
    if isinstance(response, dict):
        response = list(response.values())
    if isinstance(response, tuple | list):
        return next((item for item in response if isinstance(item, Tensor)), None)
    return None


def soft_max(logits: Tensor) -> Tensor:
    """Posteriors in float64; on devices without float64 the few logits go to the CPU."""
    wide = logits.cpu().double() if logits.device.type == "mps" else logits.double()
    return torch.softmax(wide, dim=1)


class _Held:
    """Flags that several threads switch off at once: the last one to leave switches them on again.

    Args:
        flag: name of the attribute.
    """

    def __init__(self, flag: str) -> None:
        self._flag = flag
        self._lock = threading.Lock()
        self._times: dict[Any, int] = {}  # in how many blocks each owner's flag is off

    @contextmanager
    def off(self, owners: Iterable[Any]) -> Iterator[None]:
        """Switches off those that are on while the block runs."""
        with self._lock:
            held = [owner for owner in owners if owner in self._times or getattr(owner, self._flag)]
            for owner in held:
                setattr(owner, self._flag, False)
                self._times[owner] = self._times.get(owner, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                for owner in held:
                    self._times[owner] -= 1
                    if not self._times[owner]:
                        del self._times[owner]
                        setattr(owner, self._flag, True)


_training, _learning = _Held("training"), _Held("requires_grad")


@contextmanager
def at_rest(module: nn.Module) -> Iterator[None]:
    """Puts every submodule in eval mode while the block runs, then each back as it was."""
    with _training.off(module.modules()):
        yield


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Puts the module in eval mode and asks no gradient of its parameters while the block runs, then all back."""
    with _learning.off(module.parameters()), at_rest(module):
        yield


def logits_of(output: object, images: int) -> Tensor:
    """Returns the logits (images, classes) in a module's output, or raises SubjectError."""
    found = getattr(output, "logits", output)
    if isinstance(found, dict):
        found = found.get("logits")
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise SubjectError(
            f"the module returned {type(output).__name__}; it must return logits: "
            "a floating tensor (N, classes), or an output with .logits"
        )
    if found.ndim != 2 or len(found) != images or found.shape[1] < 2:
        raise SubjectError(
            f"the module returned a tensor of shape {tuple(found.shape)} for {images} images; "
            f"logits have shape ({images}, classes), with at least 2 classes"
        )
    return found
