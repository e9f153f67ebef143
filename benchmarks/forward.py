"""What MBF features add to a forward pass, in time and memory, and the kernel beside the definition in torch.

`python -m benchmarks.forward JOB NETWORK THREADS` prints the peak memory of one job in bytes: each job runs in a
process of its own and warms up alike, so that peaks differ by what the job itself holds.
"""

import ctypes
import gc
import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

import benfourier as bf
from benchmarks.case import Case
from benchmarks.setup import NETWORKS, finished, on
from benfourier import kernels
from benfourier.metrics.timing import seconds_in_turns

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
BLOCK = 1 << 16  # freed blocks of at least this many bytes go back to the system at once
ROWS, LENGTH, ORDERS = 32, 200_000, 16
LIMITS = {"alexnet": 0.12, "vgg16": 0.08, "vit-b-16": 0.08, "cifar-resnet20": None}  # only reported for the last


def features(name: str, rounds: int, device: str = "cpu") -> Case:
    """Returns the share that features add to the plain pass: both in one layout, median of the rounds' ratios."""
    bench = NETWORKS[name]
    classifier = bench.classifier().to(device)
    layout = classifier.layer_list((3, bench.size, bench.size)).memory_format
    images = bench.images().to(device).contiguous(memory_format=layout)

    def call(**options: object) -> Callable[[], object]:
        return lambda: bf.features(classifier, images, batch=bench.batch, show_progress=False, **options)  # type: ignore[arg-type]

    with torch.inference_mode():
        seconds = seconds_in_turns(
            {
                "plain": finished(lambda: classifier.module(images), device),
                "default": call(),
                "exact": call(entries=None),
            },
            rounds,
        )
    figures = {f"{call}_ms": 1000 * median(times) / bench.batch for call, times in seconds.items()}
    for call_name in ("default", "exact"):
        ratios = [a / b for a, b in zip(seconds[call_name], seconds["plain"], strict=True)]
        figures[f"{call_name}_added"] = median(ratios) - 1
    sentence = (
        f"time that `mbf` adds to the forward pass of {name}{on(device)}, batch {bench.batch}: "
        "{plain_ms} → {default_ms} ms per image (all entries: {exact_ms} ms)"
    )
    place, limit = ("features", LIMITS[name]) if device == "cpu" else ("gpu/features", None)
    return Case(f"{place}/{name}", sentence, figures, "default_added", "share", limit)


def kernel(rounds: int) -> Case:
    """Returns how many times faster the CPU kernel is than the definition written in torch."""
    rows = torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(0))

    def definition() -> Tensor:
        """One logarithm, then a cosine and a sine per order."""
        phases = 2 * math.pi * torch.log10((rows - rows.mean(dim=1, keepdim=True)).abs())
        sums = [torch.hypot((n * phases).cos().mean(1), (n * phases).sin().mean(1)) for n in range(1, ORDERS + 1)]
        return torch.stack(sums, dim=1)

    with torch.inference_mode():
        # the kernel errs by a tenth of the noise floor at most, float32 phases by far less
        error = float((definition() - kernels.magnitudes(rows, ORDERS, backend="numba")).abs().max())
        assert error < 0.1 * 0.5 * math.sqrt(math.pi / LENGTH) + 1e-5
        seconds = seconds_in_turns(
            {"torch": definition, "numba": lambda: kernels.magnitudes(rows, ORDERS, backend="numba")}, rounds
        )
    figures = {f"{call}_ms": 1000 * median(times) for call, times in seconds.items()}
    figures["speed_up"] = median(a / b for a, b in zip(seconds["torch"], seconds["numba"], strict=True))
    sentence = f"CPU kernel beside the definition in torch, {ROWS} × {LENGTH} entries: {{torch_ms}} → {{numba_ms}} ms"
    return Case("kernel", sentence, figures, "speed_up", "factor", 10.0, "at least")


def memory(name: str, rounds: int, threads: int) -> Case:
    """Returns what features hold beyond the plain pass at their peak, counted in largest activations."""
    peaks = {
        job: median(_peak_in_new_process(job, name, threads) for _ in range(rounds)) for job in ("plain", "features")
    }
    bench = NETWORKS[name]
    largest = 4 * bench.batch * max(layer.entries for layer in bench.classifier().layers())
    figures = {f"{job}_mb": peak / 1e6 for job, peak in peaks.items()}
    figures |= {"largest_mb": largest / 1e6, "over": (peaks["features"] - peaks["plain"]) / largest}
    sentence = (
        f"memory that features of {name} take beyond the forward pass, counted in largest activations of "
        "{largest_mb} MB"
    )
    return Case(f"memory/{name}", sentence, figures, "over", "number", 2.0)


def _peak_in_new_process(job: str, name: str, threads: int) -> int:
    command = [sys.executable, "-m", "benchmarks.forward", job, name, str(threads)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(BLOCK), "MALLOC_TRIM_THRESHOLD_": str(BLOCK)}
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def peak_of_job(job: str, name: str) -> int:
    """Returns the peak memory of this process in bytes while the job runs three times."""
    bench = NETWORKS[name]
    classifier = bench.classifier()
    layout = classifier.layer_list((3, bench.size, bench.size)).memory_format
    images = bench.images().contiguous(memory_format=layout)
    jobs: dict[str, Callable[[], object]] = {
        "plain": lambda: classifier.module(images),
        "features": lambda: bf.features(classifier, images, batch=bench.batch, show_progress=False),
    }
    with torch.inference_mode():
        if os.access(CLEAR, os.W_OK):
            for warm_up in jobs.values():
                warm_up()
            reset_peak()
        else:  # the peak cannot be reset: compile kernels on one image, which stays below it
            bf.features(classifier, images[:1], show_progress=False)
        for _ in range(3):
            jobs[job]()
    return peak()


def reset_peak() -> None:
    """Returns freed memory to the system and starts the peak anew."""
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5", encoding="ascii")


def peak() -> int:
    """Returns the peak memory of this process in bytes."""
    lines = STATUS.read_text(encoding="ascii").splitlines() if STATUS.exists() else []
    for line in lines:
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    print(peak_of_job(sys.argv[1], sys.argv[2]))
