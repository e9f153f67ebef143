"""What can be done with a bare torch.nn.Module: its leaf modules, eval mode, frozen parameters, its logits."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from benfourier.errors import ClassifierError
from benfourier.models.device import wide

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict, nn.DataParallel)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_PASSING_MODULES = (nn.Identity, nn.Flatten, nn.Unflatten, *_DROPOUTS)
_PASSING_FUNCTIONS = frozenset(
    "alpha_dropout chunk clone contiguous detach dropout dropout1d dropout2d dropout3d expand expand_as "
    "feature_alpha_dropout flatten float double half getattr getitem identity movedim narrow pad permute reshape "
    "select size split squeeze stochastic_depth t to transpose type_as unbind unflatten unsqueeze view view_as".split()
)

_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_new_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a child has none of the threads that may hold a lock
    os.register_at_fork(after_in_child=_locks.clear)


def bare_module(module: nn.Module) -> nn.Module:
    """Returns the module without what torch.compile or data parallelism wraps around it.

    Raises ClassifierError if a part runs outside Python, where its layers cannot be observed.
    """
    while (inner := _inner_module(module)) is not None:
        module = inner
    for name, part in module.named_modules():
        way = _way_outside(part)
        if way:
            place = f"{name}, a part of {type(module).__name__}," if name else f"the {type(module).__name__}"
            raise ClassifierError(f"{place} is {way}: its layers cannot be observed; pass the module before that")
    return module


def _inner_module(module: nn.Module) -> nn.Module | None:
    """The module inside a wrapper; None if it is no wrapper."""
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        inner: nn.Module = module.module
        return inner
    return getattr(module, "_orig_mod", None)  # what torch.compile returns; its class is slow to import


def _way_outside(part: nn.Module) -> str:
    """How a module runs outside Python; empty if it does not."""
    if isinstance(part, torch.jit.ScriptModule):
        return "scripted or traced"
    # parts of a plain module, or Module.compile()
    compiled = hasattr(part, "_orig_mod") or getattr(part, "_compiled_call_impl", None) is not None
    return "compiled in place" if compiled else ""


def leaf_modules(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Names and modules of all leaves, each module once.

    A leaf is observed as one: a module without children, or one of torch's own composites such as attention.
    """
    inside: set[nn.Module] = set()
    for name, part in module.named_modules():
        whole = type(part).__module__.startswith("torch.nn") or next(part.children(), None) is None
        if whole and part not in inside and not isinstance(part, _CONTAINERS):
            inside.update(part.modules())
            yield name or type(part).__name__, part


def is_pass_through(source: object) -> bool:
    """True for modules and names of functions that only pass numbers on in eval mode."""
    if isinstance(source, nn.Module):
        return isinstance(source, _PASSING_MODULES)
    return source in _PASSING_FUNCTIONS


def softmax(logits: Tensor) -> Tensor:
    """Posteriors in float64; on devices without float64 the few logits go to the CPU."""
    return torch.softmax(wide(logits), dim=1)


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Puts every submodule in eval mode while the block runs, then each back as it was.

    Only one thread at a time is in such a block of one module, so that no other sees the modes change.
    """
    with _new_lock:
        lock = _locks.setdefault(module, threading.RLock())
    with lock:
        training = [part for part in module.modules() if part.training]
        try:
            for part in training:
                part.training = False
            yield
        finally:
            for part in training:
                part.training = True


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Puts the module in eval mode and asks no gradient of its parameters while the block runs, then all back."""
    with eval_mode(module):
        learning = [parameter for parameter in module.parameters() if parameter.requires_grad]
        try:
            for parameter in learning:
                parameter.requires_grad = False
            yield
        finally:
            for parameter in learning:
                parameter.requires_grad = True


def logits_of(output: object, images: int) -> Tensor:
    """Returns the logits (images, classes) in a module's output, or raises ClassifierError."""
    logits = getattr(output, "logits", output)
    if isinstance(logits, dict):
        logits = logits.get("logits")
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        problem = f"the module returned {type(output).__name__}; it must return logits"
        raise ClassifierError(f"{problem}: a floating tensor (N, classes), or an output with .logits")
    if logits.ndim != 2 or len(logits) != images or logits.shape[1] < 2:
        problem = f"the module returned a tensor of shape {tuple(logits.shape)} for {images} images"
        raise ClassifierError(f"{problem}; logits have shape ({images}, classes), with at least 2 classes")
    return logits
