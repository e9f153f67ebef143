"""The passes of a subject made quicker on the CPU, with the same logits up to rounding."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from benfourier.attacks.shortcuts import shortcut
from benfourier.errors import SubjectError
from benfourier.subjects.hearing import logits_of
from benfourier.subjects.leaves import leaves
from benfourier.subjects.subject import Subject

TRUST = 1e-3  # two layouts agree if logits differ by this fraction at most


@dataclass(frozen=True)
class Quick:
    """How passes are made quicker.

    Attributes:
        layout: of images; channels-last makes convolutions and pooling faster.
        crossed: layers whose gradients come in another layout, as from a view of their output.
        shortcuts: layers whose gradients have a shortcut.
    """

    layout: torch.memory_format = torch.preserve_format
    crossed: tuple[nn.Module, ...] = ()
    shortcuts: tuple[nn.Module, ...] = ()

    @contextmanager
    def gradients(self) -> Iterator[None]:
        """Makes backward passes quicker whose forward pass runs in the block."""
        own = [layer for layer in self.shortcuts if "forward" not in vars(layer)]
        try:
            for layer in own:
                layer.forward = partial(_by_shortcut, layer)
            with _heard(self.crossed, lambda _, gradient: gradient.contiguous(memory_format=torch.channels_last)):
                yield
        finally:
            for layer in own:
                del layer.forward


AS_GIVEN = Quick()


def quickest(subject: Subject, image: Tensor, expected: Tensor) -> Quick:
    """Returns what the module takes, found by one pass.

    Args:
        subject: whose module is undisturbed.
        image: (1, C, H, W), on the subject's device.
        expected: its logits.
    """
    crossed: list[nn.Module] = []

    def note(layer: nn.Module, gradient: Tensor) -> Tensor:
        if not _channels_last(gradient):
            crossed.append(layer)
        return gradient

    if image.device.type != "cpu":
        return AS_GIVEN
    layers = [layer for _, layer in leaves(subject.module)]
    try:
        with torch.enable_grad(), _heard(layers, note):
            leaf = image.detach().requires_grad_()
            entering = subject.normalise(leaf).clone(memory_format=torch.channels_last)
            logits = logits_of(subject.module(entering), len(image))
            if logits.requires_grad:
                torch.autograd.grad(logits.sum(), leaf)
    except (RuntimeError, TypeError, ValueError, AttributeError, SubjectError):  # a view of what does not lie in a row
        return AS_GIVEN
    slack = TRUST * float(expected.abs().max())
    if logits.shape != expected.shape or not torch.allclose(logits, expected, rtol=TRUST, atol=slack):
        return AS_GIVEN
    quicker = tuple(layer for layer in layers if shortcut(layer))
    return Quick(torch.channels_last, tuple(dict.fromkeys(crossed)), quicker)


@contextmanager
def _heard(layers: Sequence[nn.Module], hear: Callable[[nn.Module, Tensor], Tensor]) -> Iterator[None]:
    """Hands on the gradients of the layers' channels-last outputs while the block runs; what comes back counts."""

    def listen(layer: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and output.requires_grad and _channels_last(output):
            output.register_hook(lambda gradient: hear(layer, gradient))  # type: ignore[no-untyped-call]

    handles = [layer.register_forward_hook(listen) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _channels_last(tensor: Tensor) -> bool:
    return tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)


def _by_shortcut(layer: nn.Module, entering: Tensor) -> Tensor:
    way = shortcut(layer)
    assert way is not None
    left: Tensor = way.apply(entering, layer)  # type: ignore[no-untyped-call]
    return left
