"""The layers of a module: which operations fire in a forward pass, in which order, and how to select some."""

import math
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benfourier.errors import ClassifierError, LayerError
from benfourier.models.module import eval_mode, is_pass_through, leaf_modules, logits_of, softmax

INPUT = "input-image"  # layer name of the images themselves, as they enter the module
SOFTMAX = "soft-max"  # layer name of the posteriors, float64
# by which a module turns numbers of a tensor into Python's, on which its control flow may then depend
READS = frozenset("__bool__ __float__ __int__ __index__ item tolist numpy __array__ equal allclose is_nonzero".split())
# by which it selects images, so that fewer leave than enter
SELECTS = frozenset("nonzero argwhere masked_select unique".split())
TRIAL = 3  # images in the trial pass: an odd number, so that other first dimensions are not taken for it
# operators by the names that torch gives them, to the names of the operators
_ALIASES = {"rsub": "sub", "div": "truediv", "rdiv": "truediv", "rtruediv": "truediv", "rpow": "pow"}

LayerSelector = str | type[nn.Module]
LayerSelection = LayerSelector | Sequence[LayerSelector] | None
_messages: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()  # warnings of each module so far
Record = Callable[[str, object, Tensor], None]  # name of the layer, its module or function's name, its activation


class UnobservedLayerWarning(UserWarning):
    """Some layers of a module cannot be observed."""


@dataclass(frozen=True)
class Layer:
    """One layer: a leaf module, a functional operation, or the soft-max."""

    name: str  # module path, or `path.function()` for a functional operation; `#2` marks a second firing
    kind: str  # name of the module's class or of the function
    entries: int  # numbers in one image's activation
    pass_through: bool = False  # it only passes numbers on in eval mode
    module_type: type[nn.Module] | None = None  # None for functions and the soft-max


@dataclass(frozen=True)
class LayerList:
    """The layers of a module for images of one shape."""

    layers: tuple[Layer, ...]  # everything that fires, in order; the soft-max is last
    memory_format: torch.memory_format  # layout in which images enter
    unobserved: tuple[str, ...]  # modules whose first dimension does not count images
    names: tuple[str, ...]  # of everything that fired in the trial pass: `layers` may become fewer at a fit
    may_branch: bool  # the module reads numbers of its tensors, so that other layers may fire for other images


class LayerRecorder(TorchFunctionMode):
    """Reports every floating tensor that leaves a layer while the block runs.

    Hooks on leaf modules report their outputs. Functional operations between them are seen by this mode and reported
    under the path of the module whose forward calls them. Hooks are removed at the end, also after a failure. The
    module is called by the thread that entered the block; calls by other threads are not reported, and neither are
    operations of `record` itself.
    """

    def __init__(self, module: nn.Module, record: Record) -> None:
        super().__init__()
        self._record = record
        self._leaves = {leaf: name for name, leaf in leaf_modules(module)}
        inside = {part for leaf in self._leaves for part in leaf.modules()}
        self._paths = {part: name for name, part in module.named_modules() if part not in inside}
        self._owners: list[str] = []  # paths of the modules whose forward is running; the module itself is ""
        self._depth = 0  # above 0 within leaf modules and within `record`
        self._firings: Counter[str] = Counter()
        self._hooks = ExitStack()
        self._thread = threading.get_ident()

    def __enter__(self) -> Self:
        with ExitStack() as hooks:  # removes them if anything fails here
            for part in (*self._leaves, *self._paths):
                # first, so that a user's hooks count as part of the leaf
                hooks.enter_context(part.register_forward_pre_hook(self._enter, prepend=True))
                hooks.enter_context(part.register_forward_hook(self._leave, always_call=True))
            super().__enter__()  # type: ignore[no-untyped-call]
            self._hooks = hooks.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.close()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _enter(self, module: nn.Module, _: object) -> None:
        if threading.get_ident() == self._thread:
            if module in self._leaves:
                self._depth += 1
            else:
                self._owners.append(self._paths[module])

    def _leave(self, module: nn.Module, _: object, output: object) -> None:
        if threading.get_ident() == self._thread:
            if module not in self._leaves:
                self._owners.pop()
                return
            self._depth -= 1
            if self._depth == 0:
                self._fire(self._leaves[module], module, output)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._depth == 0 and self._owners:
            name = getattr(func, "__name__", "").strip("_")
            # "get" reads an attribute, such as a parameter or a shape
            if name != "get" and not isinstance(result, nn.Parameter):
                name, owner = _ALIASES.get(name, name), self._owners[-1]
                self._fire(f"{owner}.{name}()" if owner else f"{name}()", name, result)
        return result

    def _fire(self, name: str, source: object, output: object) -> None:
        if isinstance(output, dict):
            output = list(output.values())
        items = output if isinstance(output, tuple | list) else [output]
        activation = next((item for item in items if isinstance(item, Tensor)), None)
        if activation is None:
            return
        with torch._C.DisableTorchFunction():  # this mode need not see these two
            if not activation.is_floating_point() or activation.ndim == 0:
                return
        self._firings[name] += 1
        count = self._firings[name]
        self._depth += 1  # what follows is no part of the network
        try:
            self._record(name if count == 1 else f"{name}#{count}", source, activation)
        finally:
            self._depth -= 1


class TrialRecorder(LayerRecorder):
    """Also notes whether the module reads numbers of its tensors, which other passes need not know."""

    may_branch = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.may_branch |= _reads_numbers(getattr(func, "__name__", ""), args)
        return super().__torch_function__(func, types, args, kwargs)


def _reads_numbers(function: str, args: Sequence[Any]) -> bool:
    if function in ("__getitem__", "__setitem__"):  # a mask selects images
        places = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(place, Tensor) and place.dtype == torch.bool for place in places)
    return function in READS or function in SELECTS or (function == "where" and len(args) == 1)


def find_layers(module: nn.Module, trial: Tensor) -> LayerList:
    """Returns what fires for images such as the trial ones, (TRIAL, C, H, W) as they enter the module.

    Images enter channels-last on the CPU if the module takes them so and answers alike: convolutions are faster then.
    """
    with eval_mode(module), torch.no_grad():
        logits = logits_of(module(trial.clone()), len(trial))  # the module may write into its images
        total, slack = logits.double().sum(dim=1), max(1e-4, 4 * torch.finfo(logits.dtype).eps)
        if bool((logits >= 0).all()) and bool(((total - 1).abs() < slack).all()):
            problem = "the module returns probabilities (each row is non-negative and sums to 1), not logits"
            raise ClassifierError(f"{problem}; wrap the part before its final soft-max")
        layout = torch.contiguous_format
        fast = trial.contiguous(memory_format=torch.channels_last)
        if trial.device.type == "cpu" and _agrees(module, fast, logits):
            layout, trial = torch.channels_last, fast
        layers, unobserved, may_branch = _record_layers(module, trial)
    if unobserved:
        warn_unobserved(module, "whose first dimension does not count images", unobserved)
    return LayerList(layers, layout, unobserved, tuple(layer.name for layer in layers), may_branch)


def warn_unobserved(module: nn.Module, reason: str, layers: Sequence[str]) -> None:
    """Warns of layers that are not observed, once for each module and message."""
    names = ", ".join(layers[:8]) + (", …" if len(layers) > 8 else "")
    message = f"{type(module).__name__} has layers {reason}, so they are not observed: {names}"
    # Python's own memory of warnings is lost whenever somebody changes a filter
    if message not in _messages.setdefault(module, set()):
        _messages[module].add(message)
        # of no file, whose line Python would print too
        warnings.warn_explicit(message, UnobservedLayerWarning, "benfourier", 1)


def _record_layers(module: nn.Module, trial: Tensor) -> tuple[tuple[Layer, ...], tuple[str, ...], bool]:
    """The layers in firing order, modules whose output is not one row per image, and whether it may branch."""
    layers: list[Layer] = []
    unobserved: list[str] = []

    def record(name: str, source: object, activation: Tensor) -> None:
        kind = type(source) if isinstance(source, nn.Module) else None
        if len(activation) == len(trial):
            entries = math.prod(activation.shape[1:])
            layers.append(Layer(name, kind.__name__ if kind else str(source), entries, is_pass_through(source), kind))
        elif kind and not is_pass_through(source):
            unobserved.append(name)

    with TrialRecorder(module, record) as recorder:
        output = module(trial.clone())
    if not layers:
        raise ClassifierError("no layer of the module fired; it must consist of torch.nn modules that are called")
    record(SOFTMAX, SOFTMAX, softmax(logits_of(output, len(trial))))
    return tuple(layers), tuple(unobserved), recorder.may_branch


def _agrees(module: nn.Module, images: Tensor, expected: Tensor) -> bool:
    """True if the module takes the images and gives the expected logits up to rounding."""
    try:
        logits = logits_of(module(images.clone()), len(images))
    except (RuntimeError, TypeError, ValueError, AttributeError, ClassifierError):
        return False
    slack = 1e-3 * float(expected.nan_to_num(0, 0, 0).abs().max())
    return logits.shape == expected.shape and torch.allclose(logits, expected, rtol=1e-3, atol=slack, equal_nan=True)


def select_layers(layers: Sequence[Layer], selection: LayerSelection, *, pass_through: bool) -> tuple[Layer, ...]:
    """Returns the layers that the selection names, in firing order; for both options see Classifier.layer_names.

    A layer named outright is taken even if it only passes numbers on.
    """
    others = [layer for layer in layers if pass_through or not layer.pass_through]
    if selection is None:
        return tuple(others)
    if isinstance(selection, str | type) or not isinstance(selection, Iterable):
        selection = [selection]
    names: set[str] = set()
    for selector in selection:
        if not isinstance(selector, str | type):
            raise LayerError(f"layers holds {selector!r}; it must be names, globs or module types")
        exact = [layer.name for layer in layers if layer.name == selector]
        matches = exact or [layer.name for layer in others if _matches(layer, selector)]
        if not matches:
            raise _no_match(selector, layers)
        names.update(matches)
    if not names:
        raise LayerError("the selection of layers is empty; name at least one, or pass None for all")
    return tuple(layer for layer in layers if layer.name in names)


def _matches(layer: Layer, selector: LayerSelector) -> bool:
    if isinstance(selector, type):
        return layer.module_type is not None and issubclass(layer.module_type, selector)
    if selector.startswith("type:"):
        return layer.kind == selector.removeprefix("type:")
    return fnmatchcase(layer.name, selector)


def _no_match(selector: LayerSelector, layers: Sequence[Layer]) -> LayerError:
    names = [layer.name for layer in layers]
    if isinstance(selector, type) or selector.startswith("type:"):
        kinds = ", ".join(sorted({layer.kind for layer in layers}))
        return LayerError(f"no layer is of type {getattr(selector, '__name__', selector)}; this classifier has {kinds}")
    near = get_close_matches(selector, names, n=3, cutoff=0.4)
    hint = f"; near matches: {', '.join(near)}" if near else ""
    problem = f"layer {selector!r} not found{hint}; this classifier has {len(names)} layers"
    return LayerError(f"{problem}, list them with classifier.layer_names(pass_through=True)")
