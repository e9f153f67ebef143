"""Weights of the networks of a GAN: drawn, in one row, and put back."""

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from benfourier.detectors.gan import KERNEL, STRIDE, Critic, Generator, Shape

Network = TypeVar("Network", Generator, Critic)


def made(kind: type[Network], shape: Shape, width: int, draws: torch.Generator) -> Network:
    """Returns a network whose weights are drawn, uniform with variance 4 / (numbers in + numbers out); biases are 0.

    No draw is taken from torch's own generator.
    """
    with torch.device("meta"):
        network = kind(shape, width)
    network = network.to_empty(device="cpu")
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
                limit = math.sqrt(12 / _met(module))
                module.weight.uniform_(-limit, limit, generator=draws)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
    return network


def _met(module: nn.Linear | nn.Conv2d | nn.ConvTranspose2d) -> float:
    """How many numbers of the layer before one number meets, and of the layer behind."""
    if isinstance(module, nn.Linear):
        return module.in_features + module.out_features
    down = isinstance(module, nn.Conv2d)
    taps = KERNEL**2
    few, many = taps / STRIDE**2, taps
    return module.in_channels * (many if down else few) + module.out_channels * (few if down else many)


def flat(network: nn.Module) -> Tensor:
    """Returns all parameters in one row."""
    return torch.cat([parameter.detach().cpu().reshape(-1) for parameter in network.parameters()])


def channels_last(network: Generator) -> Generator:
    """Returns the generator in the layout in which it is quickest."""
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def restored(shape: Shape, width: int, weights: Tensor) -> Generator:
    """Returns the generator with those parameters, channels last; it learns no more."""
    with torch.device("meta"):
        network = Generator(shape, width)
    network = network.to_empty(device="cpu").requires_grad_(False)
    counts = [parameter.numel() for parameter in network.parameters()]
    for parameter, part in zip(network.parameters(), torch.split(weights, counts), strict=True):
        parameter.copy_(part.view_as(parameter))
    return channels_last(network)
