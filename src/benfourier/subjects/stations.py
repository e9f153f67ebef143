"""Element-wise steps in a row, such as batch norm, addition and ReLU, heard in one pass over memory if possible."""

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.nn import functional

from benfourier import kernels
from benfourier.subjects.hearing import Reporter, report, this_run
from benfourier.theory.coefficients import Zeros

AS_IS, SCALE, ADD, RECTIFY = range(4)  # as the kernels number them
_NONE = np.zeros(1, np.float32)
_ADDITIONS = (operator.add, operator.iadd, torch.add)
_RECTIFIERS = (functional.relu, torch.relu, torch.relu_, "relu", "relu_")


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        kind: AS_IS for a response that is only heard, SCALE, ADD or RECTIFY.
        name: the layer's name.
        source: the module, or the function's name.
    """

    kind: int
    name: str
    source: nn.Module | str

    def apply(self, x: Tensor, other: Tensor | None) -> Tensor:
        """Returns the response, by torch."""
        if self.kind == AS_IS:
            return x
        if self.kind == ADD:
            assert other is not None
            return x + other
        return self.source(x) if isinstance(self.source, nn.Module) else functional.relu(x)


class Station(Reporter):
    """Stands in a trace for steps that follow one another, each the only user of the one before."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        super().__init__([step.source for step in steps if isinstance(step.source, nn.Module)])
        self.steps = steps
        self.kinds = [step.kind for step in steps]
        self._norms = [m for m in self.reported if isinstance(m, nn.BatchNorm2d)]  # one at most

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Returns the last step's response; the run that this thread is in hears every one."""
        run = this_run()
        if run is not None and run.walk is not None:
            found = run.walk(run, self, x, other)
            if found is not None:
                return found
        for step in self.steps:
            x = step.apply(x, other)
            report(step.name, step.source, x)
        return x

    @property
    def norm(self) -> nn.BatchNorm2d | None:
        """The batch norm among the modules, one at most."""
        return self._norms[0] if self._norms else None

    def can_walk(self) -> bool:
        """True unless modules have hooks of their own, or a batch norm other numbers than float32 on the CPU."""
        if any(m._forward_hooks or m._forward_pre_hooks for m in self.reported):
            return False
        norm = self.norm
        return norm is None or all(map(_is_plain, (norm.running_mean, norm.running_var, norm.weight, norm.bias)))


@dataclass(frozen=True, eq=False)
class Walker:
    """A station's steps in one pass, with the numbers that its modules hold now."""

    station: Station
    kernel: Any
    steps: Any

    def walk(
        self, x: Tensor, other: Tensor | None, orders: int, *, centre: bool, zeros: Zeros
    ) -> tuple[Tensor, Tensor] | None:
        """Returns the last step's response and |â_n| of each, (steps, images, orders); None if it cannot be done."""
        if torch.is_grad_enabled() and (x.requires_grad or (other is not None and other.requires_grad)):
            return None
        if not self.kernel.suits(x, other, orders):
            return None
        # a convolution's response is the station's own: nothing else uses it, and nobody has hooks there
        own = self.station.kinds[0] == AS_IS
        end, found, refused = self.kernel.walk(x, self.steps, other, orders, centre=centre, zeros=zeros, own=own)
        if refused:
            self._walk_again(x, other, found, centre=centre, zeros=zeros)
        return end, found

    def _walk_again(self, x: Tensor, other: Tensor | None, found: Tensor, *, centre: bool, zeros: Zeros) -> None:
        """Replaces NaN in what was found by what the kernels say of the response itself."""
        rows = found[:, :, 0].isnan().any(dim=0)
        x, other = x[rows], None if other is None else other[rows]
        for k, step in enumerate(self.station.steps):
            x = step.apply(x, other)
            found[k, rows] = kernels.unchecked_magnitudes(x, found.shape[2], centre=centre, zeros=zeros, method="fused")


def _is_plain(tensor: Tensor | None) -> bool:
    return tensor is None or (tensor.dtype == torch.float32 and tensor.device.type == "cpu")


def _numbers(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, variance, weight and bias of a batch norm."""
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    weight = torch.ones_like(mean) if norm.weight is None else norm.weight
    return mean, variance, weight, torch.zeros_like(mean) if norm.bias is None else norm.bias


def _scalings(norms: list[nn.BatchNorm2d]) -> dict[nn.BatchNorm2d, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """What batch norms in eval mode multiply channels with, and what they add; all at once, since each is small."""
    if not norms:
        return {}
    with torch.no_grad():
        mean, variance, weight, bias = (torch.cat(kind).numpy() for kind in zip(*map(_numbers, norms), strict=True))
    channels = [norm.num_features for norm in norms]
    eps = np.repeat(np.array([norm.eps for norm in norms], np.float32), channels)
    scale = 1 / np.sqrt(variance + eps) * weight
    # rounded once, as torch rounds it: responses are then the same to the last bit
    shift = (bias - mean.astype(np.float64) * scale).astype(np.float32)
    ends = np.cumsum(channels).tolist()
    return {n: (scale[e - c : e], shift[e - c : e]) for n, c, e in zip(norms, channels, ends, strict=True)}


def name_of(node: fx.Node) -> tuple[str, str]:
    """Name of the layer that a functional operation is, and of the function."""
    function = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    function = function.strip("_")
    owner = node.meta.get("owner", "")
    return (f"{owner}.{function}()" if owner else f"{function}()"), function


def walkers(runner: nn.Module) -> dict[Station, Walker]:
    """What takes the steps of the stations of a trace, for one pass; none without numba."""
    kernel = kernels.step_kernel()
    if kernel is None:
        return {}
    stations = [part for part in runner.children() if isinstance(part, Station) and part.can_walk()]
    scalings = _scalings([station.norm for station in stations if station.norm is not None])
    found = {}
    for station in stations:
        scale, shift = (_NONE, _NONE) if station.norm is None else scalings[station.norm]
        found[station] = Walker(station, kernel, kernel.steps_of(station.kinds, scale, shift))
    return found


def add_stations(graph: fx.Graph, module: nn.Module) -> dict[str, Station]:
    """Puts stations in place of steps; returns them by target."""
    stations: dict[str, Station] = {}
    gone: set[fx.Node] = set()
    kinds = _kinds(graph, module)
    for node in kinds:
        if node in gone:
            continue
        chain = _chain(node, kinds)
        gone.update(chain)
        steps = [_step(link, kinds[link], module) for link in chain]
        start = node.all_input_nodes[0]
        ways = [n for link in chain for n in link.all_input_nodes if n not in chain]
        other = ways[1:]  # what is added, the start itself in some networks
        head = _head(start, graph, module)
        target = f"station_{len(stations)}"
        stations[target] = Station((*([head] if head else []), *steps))
        with graph.inserting_after(chain[-1]):
            station = graph.create_node("call_module", target, (start, *other))
        chain[-1].replace_all_uses_with(station)
        for link in reversed(chain):
            graph.erase_node(link)
    return stations


def _kinds(graph: fx.Graph, module: nn.Module) -> dict[fx.Node, int]:
    """The nodes that are steps, with their kinds; modules that are called elsewhere too are left to their hooks."""
    every = {node: _kind(node, module) for node in graph.nodes}
    called = {node: module.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"}
    elsewhere = {source for node, source in called.items() if every[node] is None}
    return {node: kind for node, kind in every.items() if kind is not None and called.get(node) not in elsewhere}


def _chain(node: fx.Node, kinds: dict[fx.Node, int]) -> list[fx.Node]:
    """The node and the steps that follow it, no kind twice."""
    chain = [node]
    while len(chain[-1].users) == 1:
        after = next(iter(chain[-1].users))
        if after not in kinds or kinds[after] in {kinds[link] for link in chain}:
            break
        chain.append(after)
    return chain


def _step(node: fx.Node, kind: int, module: nn.Module) -> Step:
    if node.op == "call_module":
        return Step(kind, str(node.target), module.get_submodule(str(node.target)))
    return Step(kind, *name_of(node))


def _kind(node: fx.Node, module: nn.Module) -> int | None:
    """Which step a node is, if any."""
    inputs: list[fx.Node] = node.all_input_nodes
    if node.op == "call_module":
        source = module.get_submodule(str(node.target))
        if type(source) is nn.BatchNorm2d and source.running_mean is not None:
            return SCALE
        return RECTIFY if type(source) is nn.ReLU and not (source.inplace and len(inputs[0].users) > 1) else None
    if node.op not in ("call_function", "call_method"):
        return None
    if node.target in _ADDITIONS and len(node.args) == len(inputs) == 2 and not node.kwargs:
        return ADD
    inplace = node.target in ("relu_", torch.relu_) or bool(node.kwargs.get("inplace"))
    return RECTIFY if node.target in _RECTIFIERS and not (inplace and len(inputs[0].users) > 1) else None


def _head(node: fx.Node, graph: fx.Graph, module: nn.Module) -> Step | None:
    """The convolution before a chain, if nothing else uses it: its response is heard in the same pass."""
    calls = [n for n in graph.nodes if n.op == "call_module" and n.target == node.target]
    if node.op != "call_module" or len(calls) > 1 or len(node.users) > 1:
        return None
    source = module.get_submodule(str(node.target))
    return Step(AS_IS, str(node.target), source) if type(source) is nn.Conv2d else None
