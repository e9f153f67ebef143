"""What a result depends on, as digests: the network with all that decides its numbers, and images."""

import inspect
from collections.abc import Iterator
from importlib.metadata import version
from types import CodeType

import torch
from torch import Tensor, nn

from benfourier.store.digest import Part, digest_of
from benfourier.subjects.hearing import at_rest
from benfourier.subjects.subject import Subject
from benfourier.subjects.tracing import trace
from benfourier.subjects.weights import digest_of_weights

PLAIN = (bool, int, float, str, tuple, type(None))
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
    """What the weights do not tell: numbers and words, such as a factor, buffers that are not saved, and layouts."""
    saved = module.state_dict().keys()
    for name, part in module.named_modules():
        held = {key: value for key, value in vars(part).items() if key not in OWN and isinstance(value, PLAIN)}
        yield f"{name} {sorted(held.items())!r}"
    for name, parameter in module.named_parameters():
        yield f"{name} {parameter.stride()}"
    for name, buffer in module.named_buffers():
        if name not in saved:
            yield name
            yield buffer.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


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
