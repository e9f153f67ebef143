"""Memory that features take on top of the forward pass, in units of the network's largest response.

Each job runs in a process of its own: `python -m benchmarks.memory JOB NETWORK BATCH` prints that job's peak in bytes.
All jobs warm up alike, compiled kernels and the plan included, so that peaks differ by what the job itself holds.
"""

import ctypes
import gc
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

import torch

import benfourier as bf
from benchmarks.networks import Bench
from benchmarks.results import Case

JOBS = ("plain", "plain_channels_last", "features")
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
BLOCK = 1 << 16  # freed blocks of at least this many bytes go back to the system at once


def measure(bench: Bench, limit: float, rounds: int, threads: int) -> Case:
    """Returns each job's peak in megabytes, and the features' own share in largest responses."""
    runs: dict[str, list[int]] = {job: [] for job in JOBS}
    for _ in range(rounds):
        for job in JOBS:
            runs[job].append(_in_fresh_process(job, bench, threads))
    peaks = {job: median(found) for job, found in runs.items()}
    largest = 4 * bench.batch * max(layer.entries for layer in bench.subject().describe())
    figures = {f"{job}_peak_mb": peak / 1e6 for job, peak in peaks.items()}
    figures["largest_response_mb"] = largest / 1e6
    figures["over_plain"] = (peaks["features"] - peaks["plain"]) / largest
    figures["over_same_layout"] = (peaks["features"] - peaks["plain_channels_last"]) / largest
    figures["over_lower"] = max(figures["over_plain"], figures["over_same_layout"])
    return Case(f"memory/{bench.name}", figures, "over_lower", limit, "at most")


def _in_fresh_process(job: str, bench: Bench, threads: int) -> int:
    command = [sys.executable, "-m", "benchmarks.memory", job, bench.name, str(bench.batch), str(threads)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(BLOCK), "MALLOC_TRIM_THRESHOLD_": str(BLOCK)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def peak_of(job: str, bench: Bench) -> int:
    """Returns the peak of this process in bytes while the job runs three times."""
    subject, images = bench.subject(), bench.images()
    channels_last = images.contiguous(memory_format=torch.channels_last)
    jobs: dict[str, Callable[[], object]] = {
        "plain": lambda: subject.module(images),
        "plain_channels_last": lambda: subject.module(channels_last),
        "features": lambda: bf.features(subject, images, batch=bench.batch, show_progress=False),
    }
    with torch.inference_mode():
        if os.access(CLEAR, os.W_OK):
            for warm_up in jobs.values():
                warm_up()
            forget_peak()
        else:  # the peak cannot start anew: kernels are compiled on one image, which stays below it
            bf.features(subject, images[:1], show_progress=False)
        for _ in range(3):
            jobs[job]()
    return peak()


def forget_peak() -> None:
    """Hands freed memory back and starts the peak anew."""
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5", encoding="ascii")


def peak() -> int:
    lines = STATUS.read_text(encoding="ascii").splitlines() if STATUS.exists() else []
    for line in lines:
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    job, name, batch, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    print(peak_of(job, Bench(name, int(batch))))
