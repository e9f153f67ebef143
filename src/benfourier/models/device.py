"""Where a network runs: which devices there are, their generators, and what to do on those without float64."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from benfourier.errors import OptionError

ACCELERATORS = ("cuda", "xpu", "mps")  # kinds of GPUs that torch knows and that may be there
NO_FLOAT64 = ("mps",)  # devices of Apple


def device_names() -> list[str]:
    """Returns the devices of this machine that torch can use, such as "cpu" and "cuda:0"."""
    counts = {kind: getattr(torch, kind).device_count() for kind in ACCELERATORS}
    return ["cpu", *(f"{kind}:{number}" for kind, count in counts.items() for number in range(count))]


def check_device(value: str | torch.device) -> torch.device:
    """Returns a device of this machine, or raises OptionError; "cuda" is the present one of several."""
    names = device_names()
    if str(value) not in {*names, *(name.partition(":")[0] for name in names)}:
        raise OptionError(
            f"device is {str(value)!r}; this machine has {', '.join(names)}: name one of these, or install a build of "
            "torch that sees the device you mean",
            "device",
        )
    return torch.device(value)


def float64_device(device: torch.device) -> torch.device:
    """Returns the device itself, or the CPU for one that has no float64."""
    return torch.device("cpu") if device.type in NO_FLOAT64 else device


def wide(numbers: Tensor) -> Tensor:
    """Returns numbers as float64, where they are unless that device has none."""
    return numbers.to(float64_device(numbers.device)).double()


def generator_states(device: torch.device) -> list[Tensor]:
    """Returns the states of torch's global generators: that of the CPU, and that of a GPU."""
    gpu = [getattr(torch, device.type).get_rng_state(device)] if device.type in ACCELERATORS else []
    return [torch.get_rng_state(), *gpu]


@contextmanager
def forked_generators(device: torch.device) -> Iterator[None]:
    """Restores torch's global generators after the block: that of the CPU, and that of a GPU."""
    is_gpu = device.type in ACCELERATORS
    with torch.random.fork_rng([device] if is_gpu else [], device_type=device.type if is_gpu else "cuda"):
        yield
