"""What computes the numbers: versions of the libraries, and the machine."""

import os
import platform
from functools import cache
from importlib.metadata import version

LIBRARIES = ("benfourier", "numba", "numpy", "scikit-learn", "scipy", "torch")


@cache
def versions() -> dict[str, str]:
    """Returns the versions of Python and of the libraries that results depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}


def machine() -> dict[str, str | int]:
    """Returns the processor, its cores and the threads that are used; nothing that names the machine."""
    import torch

    return {
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def _processor() -> str:
    """The processor's name as Linux tells it, or its kind."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
