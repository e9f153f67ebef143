"""Ears for one layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def flat(response: Tensor) -> Tensor:
    """Returns a copy (images, entries) in float64 on the CPU: later layers may write into the response."""
    return response.flatten(1).to("cpu", torch.float64, copy=True)


def averages(response: Tensor) -> Tensor:
    """Returns one number per channel, (images, channels), float64 on the CPU.

    Channels are the second dimension of maps (N, C, H, W) and the last one of rows of tokens (N, T, D).
    """
    if response.ndim > 2:
        response = response.mean(1) if response.ndim == 3 else response.mean(tuple(range(2, response.ndim)))
    return flat(response)


@dataclass(frozen=True, eq=False)
class OneLayer:
    """What one layer answers, and nothing made of it: `take` is `flat` or `averages`."""

    layer: str
    take: Callable[[Tensor], Tensor]

    @property
    def layers(self) -> tuple[str, ...]:
        """The one layer."""
        return (self.layer,)

    def ear(self, ids: Sequence[str]) -> "OneEar":
        """Returns an ear for one batch."""
        return OneEar(self.take, lambda taken, _: taken)


@dataclass(frozen=True)
class Answers:
    """What one layer answers, and the class that the network sees, in the last column."""

    layer: str

    @property
    def layers(self) -> tuple[str, ...]:
        """The one layer."""
        return (self.layer,)

    def ear(self, ids: Sequence[str]) -> "OneEar":
        """Returns an ear for one batch."""
        return OneEar(flat, lambda taken, logits: torch.cat([taken, logits.argmax(1, keepdim=True).to(taken)], 1))


@dataclass(frozen=True)
class Averages:
    """The averages of several layers, in firing order, side by side."""

    layers: tuple[str, ...]

    def ear(self, ids: Sequence[str]) -> "ManyEar":
        """Returns an ear for one batch."""
        return ManyEar(self.layers)


class ManyEar:
    """Takes the averages of layers while their responses are in cache."""

    def __init__(self, layers: tuple[str, ...]) -> None:
        self.layers = layers
        self.heard: dict[str, Tensor] = {}

    def hear(self, name: str, response: Tensor) -> None:
        """Takes them."""
        self.heard[name] = averages(response)

    def numbers(self, logits: Tensor) -> Tensor:
        """Returns (images, all channels)."""
        return torch.cat([self.heard[name] for name in self.layers], 1)


class OneEar:
    """Takes something of one response, and turns it and the logits into numbers once the pass is over."""

    def __init__(self, take: Callable[[Tensor], Tensor], turn: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._take, self._turn = take, turn

    def hear(self, name: str, response: Tensor) -> None:
        """Takes it while the response is in cache."""
        self._taken = self._take(response)

    def numbers(self, logits: Tensor) -> Tensor:
        """Returns (images, numbers)."""
        return self._turn(self._taken, logits)
