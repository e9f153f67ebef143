"""Where a network runs: which devices there are, and what to do on those that have no float64."""

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
