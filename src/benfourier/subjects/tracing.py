"""Functional operations, which module hooks cannot see: heard through torch.fx, or at least named."""

import inspect
import threading
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from benfourier.subjects.hearing import report
from benfourier.subjects.leaves import is_leaf, is_pass_through, leaves
from benfourier.subjects.stations import add_stations, name_of

_patching = threading.Lock()  # while fx traces, nn.Module.__call__ is its own, for every thread


class Ear(nn.Module):
    """Stands behind a functional operation in a trace and reports what comes by."""

    def __init__(self, name: str, function: str) -> None:
        super().__init__()
        self.name, self.function = name, function

    def forward(self, response: object) -> None:
        """Reports the response; nothing comes back."""
        report(self.name, self.function, response)


class _Tracer(fx.Tracer):
    """Traces down to leaves, and notes which module each functional operation belongs to.

    What other threads call meanwhile is no part of the trace.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owners: list[str] = [""]
        self._thread = threading.get_ident()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Agrees with the leaves that are hooked."""
        return is_leaf(m)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Notes the module while its forward is traced."""
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        self._owners.append(self.path_of_module(m))
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self._owners.pop()

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Stands in for parameters and buffers, in the tracing thread only."""
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """Marks each node with its owner."""
        node = super().create_node(*args, **kwargs)
        node.meta["owner"] = self._owners[-1]
        return node


def trace(module: nn.Module, *, stationed: bool = False) -> fx.GraphModule | None:
    """Returns the module's trace with an ear behind each functional operation, or None if it cannot be traced.

    Where stationed, element-wise steps in a row become stations.

    The trace shares the module's own submodules and parameters; the module is not changed.
    """
    if is_leaf(module):
        return None
    parameters = list(inspect.signature(module.forward).parameters.values())[1:]
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    tracer = _Tracer()
    try:
        with _patching:
            graph = tracer.trace(module, concrete_args=defaults)
        stations = add_stations(graph, module) if stationed else {}
        used = {n.target for n in graph.nodes if n.op in ("call_module", "get_attr")}
        parts = {target: attrgetter(target)(module) for target in used - set(stations)}
        return fx.GraphModule({**parts, **stations, **_add_ears(graph)}, graph)
    # a forward written for tensors can fail in any way when it is handed proxies
    except Exception:
        return None


def _add_ears(graph: fx.Graph) -> dict[str, Ear]:
    ears: dict[str, Ear] = {}
    for node in list(graph.nodes):
        if node.op not in ("call_function", "call_method"):
            continue
        target = f"ear_{len(ears)}"
        ears[target] = Ear(*name_of(node))
        with graph.inserting_after(node):
            graph.create_node("call_module", target, (node,))
    return ears


class Unseen(TorchFunctionMode):
    """Notes the functional operations that run outside leaves, as hooks cannot see them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module
        self._depth = 0
        self._thread = threading.get_ident()
        self._found: Counter[str] = Counter()

    def __enter__(self) -> "Unseen":
        self._handles = [h for _, leaf in leaves(self._module) for h in self._watch(leaf)]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for handle in self._handles:
            handle.remove()

    def _watch(self, leaf: nn.Module) -> list[Any]:
        def enter(*_: object) -> None:
            self._depth += threading.get_ident() == self._thread

        def leave(*_: object) -> None:
            self._depth -= threading.get_ident() == self._thread

        return [leaf.register_forward_pre_hook(enter), leaf.register_forward_hook(leave, always_call=True)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "").strip("_")
        response = isinstance(result, Tensor) and result.is_floating_point() and result.ndim > 1
        attribute = name == "get" or isinstance(result, nn.Parameter)
        if self._depth == 0 and response and not attribute and not is_pass_through(name):
            self._found[name] += 1
        return result

    def operations(self) -> tuple[str, ...]:
        """Names of the operations seen, with how often."""
        return tuple(f"{name} ×{times}" if times > 1 else name for name, times in self._found.items())
