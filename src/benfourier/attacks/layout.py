"""How images and gradients lie in memory: channels-last on the CPU, where convolutions and pooling are faster so."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benfourier.errors import SubjectError
from benfourier.subjects.hearing import logits_of
from benfourier.subjects.leaves import leaves
from benfourier.subjects.subject import Subject

TRUST = 1e-3  # two layouts agree if logits differ by this fraction at most


@dataclass(frozen=True)
class Layout:
    """The layout of images, and the layers whose gradients come in another one, as from a view of their output."""

    images: torch.memory_format = torch.preserve_format
    crossed: tuple[nn.Module, ...] = ()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Lays the gradients of these layers out anew while the block runs, so that those before them need not."""
        with _heard(self.crossed, lambda layer, gradient: gradient.contiguous(memory_format=torch.channels_last)):
            yield


AS_GIVEN = Layout()


def best_layout(subject: Subject, image: Tensor, expected: Tensor) -> Layout:
    """Returns channels-last if the module takes it, else the layout that images have.

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
    try:
        with torch.enable_grad(), _heard([leaf for _, leaf in leaves(subject.module)], note):
            leaf = image.detach().requires_grad_()
            entering = subject.normalise(leaf).clone(memory_format=torch.channels_last)
            logits = logits_of(subject.module(entering), len(image))
            if logits.requires_grad:
                torch.autograd.grad(logits.sum(), leaf)
    except (RuntimeError, TypeError, ValueError, AttributeError, SubjectError):  # a view of what does not lie in a row
        return AS_GIVEN
    slack = TRUST * float(expected.abs().max())
    agree = logits.shape == expected.shape and torch.allclose(logits, expected, rtol=TRUST, atol=slack)
    return Layout(torch.channels_last, tuple(dict.fromkeys(crossed))) if agree else AS_GIVEN


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
