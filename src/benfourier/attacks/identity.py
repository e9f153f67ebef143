"""What a result depends on, as digests: the network with all that decides its numbers, and images."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from types import CodeType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benfourier.store.digest import Part, digest_of
from benfourier.subjects.hearing import at_rest
from benfourier.subjects.subject import Subject
from benfourier.subjects.tracing import trace
from benfourier.subjects.weights import digest_of_weights

PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
DEEP = 16  # objects within objects that are looked into
Seen = dict[int, object]
OWN = frozenset(vars(nn.Module()))  # attributes that torch itself gives to every module


def digest_of_subject(subject: Subject) -> str:
    """Returns a digest of all that decides a subject's numbers to the last bit; the network is not run.

    The weights, the structure, the code and the graph of the module; bounds, mean and std; and what computes them:
    the versions, the device, and on the CPU its instructions and the number of threads, which split sums.
    """
    module, device = subject.module, subject.device.type
    computed = [version("benfourier"), torch.__version__, device, str(subject.dtype)]
    if device == "cpu":
        computed += [torch.backends.cpu.get_cpu_capability(), str(torch.get_num_threads())]
    with at_rest(module):
        graph = trace(module)
    return digest_of(
        (
            *computed,
            repr((subject.bounds, subject.mean, subject.std)),
            digest_of_weights(module),
            repr(module),
            graph.code if graph is not None else "no graph",
            *_attributes(module),
            *_code(module),
        )
    )


def digests_of_images(images: Tensor) -> tuple[str, ...]:
    """Returns one digest per image of a tensor on the CPU."""
    return tuple(digest_of((image,)) for image in images.numpy())


def _attributes(module: nn.Module) -> Iterator[Part]:
    """What the weights do not tell: attributes such as a factor, buffers that are not saved, and layouts."""
    saved, seen = module.state_dict().keys(), Seen()
    for name, part in module.named_modules():
        held = {key: value for key, value in vars(part).items() if key not in OWN}
        yield f"{name} {sorted((key, value) for key, value in held.items() if _is_plain(value))!r}"
        if not type(part).__module__.startswith("torch."):
            for key in sorted(key for key, value in held.items() if not _is_plain(value)):
                yield f"{name} {key}"
                yield from _content(held[key], seen)
    for name, parameter in module.named_parameters():
        yield f"{name} {parameter.stride()}"
    for name, buffer in module.named_buffers():
        if name not in saved:
            yield name
            yield _bytes(buffer)


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else isinstance(value, PLAIN)


def _content(value: Any, seen: Seen, depth: int = DEEP) -> Iterator[Part]:
    """What an attribute holds, the attributes of objects included; what cannot be looked into counts by its kind."""
    yield f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, PLAIN):
        yield repr(value)
    elif isinstance(value, Tensor):
        yield f"{value.dtype} {tuple(value.shape)}"
        yield _bytes(value)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield value
    elif isinstance(value, set | frozenset):  # its order is another in every process
        yield from sorted(digest_of(_content(item, {}, depth - 1)) for item in value)
    elif depth and id(value) not in seen:
        seen[id(value)] = value  # held, so that nothing else gets its number
        inside = list(_inside(value))
        yield str(len(inside))
        for item in inside:
            yield from _content(item, seen, depth - 1)
        if inspect.isfunction(value):
            yield from _compiled(value.__code__)


def _inside(value: Any) -> Iterable[Any]:
    """What an object is made of."""
    if isinstance(value, Mapping):
        return [item for pair in value.items() for item in pair]
    if isinstance(value, Sequence):
        return value
    if inspect.ismethod(value):
        return [value.__func__, value.__self__]
    if inspect.isfunction(value):
        return [value.__defaults__, value.__kwdefaults__, *inspect.getclosurevars(value).nonlocals.values()]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, type) or inspect.isbuiltin(value):
        return [value.__qualname__]
    return [getattr(value, "__dict__", {})]


def _bytes(tensor: Tensor) -> NDArray[np.uint8]:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _code(module: nn.Module) -> Iterator[Part]:
    """The compiled methods of all classes that are not torch's own, as they are loaded, not as a file has them."""
    kinds = {kind for part in module.modules() for kind in type(part).__mro__ if kind is not object}
    foreign = [kind for kind in kinds if not kind.__module__.startswith("torch.")]
    for kind in sorted(foreign, key=lambda kind: kind.__qualname__):
        for name, method in sorted(vars(kind).items()):
            if inspect.isfunction(method):
                yield f"{kind.__qualname__}.{name}"
                yield from _compiled(method.__code__)


def _compiled(code: CodeType) -> Iterator[Part]:
    """Instructions, names and constants, those of functions inside too."""
    yield code.co_code
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _compiled(constant)
        else:  # the order of a set is another in every process
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
