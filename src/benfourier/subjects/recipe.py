"""How a network is trained: numbers and switches, and the learning rate of every step."""

import math
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache

import torch

from benfourier.errors import OptionError, check_seed, check_whole

WARM = 0.3  # share of the steps in which the rate rises
FIRST = 1 / 25  # of the greatest rate, where it begins
PROBE = "import torch; torch.ones(64, 64, dtype=torch.bfloat16) @ torch.ones(64, 64, dtype=torch.bfloat16)"


def native_bf16() -> bool:
    """True if this CPU multiplies bfloat16 by itself; elsewhere it is emulated, several times slower than float32."""
    return any(_has(name) for name in ("avx512_bf16", "amx_tile")) and bf16_works()


@cache
def bf16_works() -> bool:
    """False on a machine that says that it has AMX and kills whoever uses it, as some virtual ones do."""
    return not _has("amx_tile") or survives(PROBE)


def survives(code: str) -> bool:
    """True if Python code runs to its end, in another process: nobody can catch an illegal instruction."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0  # noqa: S603


def _has(name: str) -> bool:
    ask = getattr(torch.cpu, f"_is_{name}_supported", None)
    return ask is not None and bool(ask())


@dataclass(frozen=True)
class Recipe:
    """Stochastic gradient descent with Nesterov momentum; the rate rises once and falls once (one-cycle, Smith 2018).

    Args:
        epochs: how often each image is seen.
        batch: images per step.
        rate: the greatest learning rate.
        momentum: of the descent.
        weight_decay: pulls every parameter to zero.
        shift: images are moved by up to so many pixels, up or down and left or right.
        flips: half of the images are mirrored.
        bf16: convolutions and products in bfloat16; by default where the CPU does so natively.
        seed: of the order of images, their moves, and dropout.
    """

    epochs: int = 14
    batch: int = 128
    rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    shift: int = 3
    flips: bool = False
    bf16: bool = field(default_factory=native_bf16)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 2), ("shift", 0)):
            check_whole(name, getattr(self, name), least=least)
        check_seed(self.seed)
        if self.bf16 and not bf16_works():
            raise OptionError(
                "bf16 is True; this machine says that it has AMX for it and kills whoever uses it: leave bf16 out, or "
                "give --no-bf16"
            )
        for name, allowed, said in (
            ("rate", 0 < self.rate < math.inf, "greater than 0"),
            ("momentum", 0 < self.momentum < 1, "between 0 and 1"),
            ("weight_decay", 0 <= self.weight_decay < 1, "at least 0 and less than 1"),
        ):
            if not allowed:
                raise OptionError(f"{name} is {getattr(self, name)!r}; it must be {said}")

    def rate_at(self, done: float) -> float:
        """Returns the learning rate when a share of all steps is done; both arcs are half cosines."""
        if done < WARM:
            return self.rate * (FIRST + (1 - FIRST) * _arc(done / WARM))
        return self.rate * (1 - _arc((done - WARM) / (1 - WARM)))


def _arc(share: float) -> float:
    """From 0 to 1, flat at both ends."""
    return (1 - math.cos(math.pi * share)) / 2
