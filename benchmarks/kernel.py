"""Speed of the fused kernel beside the definition written in torch."""

import math

import torch
from torch import Tensor

from benchmarks.results import Case
from benchmarks.timing import take_turns
from benfourier import kernels

ROWS, LENGTH, ORDERS = 32, 200_000, 16


def naive(responses: Tensor) -> Tensor:
    """Returns |â_n| by the definition: one logarithm, then a cosine and a sine per order."""
    phases = 2 * math.pi * torch.log10((responses - responses.mean(dim=1, keepdim=True)).abs())
    sums = [torch.hypot((n * phases).cos().mean(dim=1), (n * phases).sin().mean(dim=1)) for n in range(1, ORDERS + 1)]
    return torch.stack(sums, dim=1)


def measure(limit: float, rounds: int) -> Case:
    """Returns milliseconds per block and how many times faster the fused kernel is."""
    responses = torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        fused = kernels.magnitudes(responses, ORDERS, method="fused")
        # both err: the kernel by a tenth of the noise floor at most, float32 phases by far less
        assert float((naive(responses) - fused).abs().max()) < 0.1 * 0.5 * math.sqrt(math.pi / LENGTH) + 1e-5
        seconds = take_turns(
            {
                "naive": lambda: naive(responses),
                "fused": lambda: kernels.magnitudes(responses, ORDERS, method="fused"),
            },
            rounds,
        )
    figures = {f"{name}_ms": 1000 * value for name, value in seconds.items()}
    figures["speed_up"] = seconds["naive"] / seconds["fused"]
    return Case(f"kernel/{ROWS}x{LENGTH}", figures, "speed_up", limit, "at least")
