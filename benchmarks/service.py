"""Requests per second of the service, beside the bare network behind the same server, asked from another process."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor

import benfourier as bf
from benchmarks.networks import Bench
from benchmarks.results import Case
from benfourier.data.examples import Examples
from benfourier.data.funnel import Funnel
from benfourier.service.app import make_app
from benfourier.service.door import running
from benfourier.service.judge import GuardJudge, Judged
from benfourier.service.settings import Settings

IMAGES = 8  # per request
SOURCES = 40
CLIENTS = 4
SECONDS = 6.0  # the most that one turn may take
SETTINGS = Settings(batch=IMAGES, wait=0.0)


def measure(bench: Bench, limit: float, rounds: int) -> Case:
    """Returns requests per second and latencies of both; they take turns, so that a slow spell meets both."""
    guard = _guard(bench)
    judges: dict[str, _Guarded | _Bare] = {"service": _Guarded(guard), "bare": _Bare(guard)}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in judges}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        body = Path(folder) / "body"
        length = _write_request(body, bench)
        servers = {
            name: stack.enter_context(running(make_app(_Origin(judge), SETTINGS), SETTINGS))
            for name, judge in judges.items()
        }
        for turn in range(min(rounds, 7) + 1):
            for name, address in servers.items():
                found = _load(address, body, length)
                if turn > 0:
                    turns[name].append(found)
    figures = {
        f"{name}_{figure}": median(turn[figure] for turn in found)
        for name, found in turns.items()
        for figure in ("requests_per_second", "p50_ms", "p99_ms")
    }
    shares = [
        service["requests_per_second"] / bare["requests_per_second"]
        for service, bare in zip(turns["service"], turns["bare"], strict=True)
    ]
    figures |= {"images": float(IMAGES), "requests": sum(turn["requests"] for turn in turns["service"])}
    figures["share"] = median(shares)
    return Case(f"service/{bench.name}", figures, "share", limit, "at least")


class _Guarded(GuardJudge):
    """The guard as it is served."""

    def __init__(self, guard: bf.Guard) -> None:
        super().__init__(guard, "guard")


@dataclass(frozen=True)
class _Bare:
    """The network without its detector: all images are accepted."""

    guard: bf.Guard
    version: str = "bare"

    def judge(self, images: Sequence[Tensor]) -> Judged:
        with torch.no_grad():
            labels = self.guard.subject.logits(torch.stack(list(images))).argmax(1).numpy()
        nothing = np.zeros(len(images))
        return Judged(labels, nothing == 0, nothing, np.zeros((len(images), 1)), 0.0, self.version, self.guard)


@dataclass(frozen=True)
class _Origin:
    judge: _Guarded | _Bare

    def load(self) -> _Guarded | _Bare:
        return self.judge

    def stamp(self) -> object:
        return None


def _guard(bench: Bench) -> bf.Guard:
    """MBF fitted to noise: what scoring takes does not depend on what was learned."""
    subject = bench.subject()
    draw = torch.Generator().manual_seed(1)
    clean, noisy, other, held = torch.rand((4, SOURCES, *bench.images().shape[1:]), generator=draw)
    examples = Examples(
        clean=clean,
        noisy=noisy,
        attacked={"bim": other**1.2},
        success={"bim": torch.ones(SOURCES, dtype=torch.bool)},
        labels=torch.zeros(SOURCES, dtype=torch.int64),
        ids=tuple(map(str, range(SOURCES))),
        noise_level=0.1,
        funnel=Funnel((("made", SOURCES),)),
        seed=0,
    )
    detector = bf.fit("mbf", subject, examples, C=1.0, gamma="scale", show_progress=False)
    return bf.Guard(subject, detector, clean=held, show_progress=False)


def _write_request(path: Path, bench: Bench) -> int:
    """Writes a request with its tensor as bytes; returns the length of its JSON."""
    images = bench.images()[:IMAGES].numpy()
    tensor = {"name": "images", "shape": list(images.shape), "datatype": "FP32"}
    text = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": images.nbytes}}]}).encode()
    path.write_bytes(text + images.tobytes())
    return len(text)


def _load(address: str, body: Path, length: int) -> dict[str, float]:
    """What another process measures that asks as fast as it can."""
    words = [address, str(body), str(length), str(CLIENTS), str(SECONDS)]
    command = [sys.executable, "-m", "benchmarks.load", *words]
    told = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(told.stdout)
    return found
