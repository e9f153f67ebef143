"""Requests per second of the service, beside the bare network behind the same server, asked from another process.

`python -m benchmarks.service ADDRESS BODY LENGTH SECONDS` is that process: a few clients that ask as fast as they can.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from torch import Tensor

import benfourier as bf
from benchmarks.case import Case
from benchmarks.setup import NETWORKS, BenchNetwork
from benfourier.data.examples import Examples
from benfourier.service.app import make_app
from benfourier.service.engine import Engine, GuardFile, LoadedGuard
from benfourier.service.server import make_server, open_socket
from benfourier.service.settings import Settings

IMAGES = 8  # per request
SOURCES = 40
CLIENTS = 4
SECONDS, QUICK_SECONDS = 6.0, 0.5  # the most that one turn may take
MAX_REQUESTS = 150  # of one client in one turn
LIMITS = {"alexnet": 0.8, "cifar-resnet20": None}  # reported: a quick network leaves the detector most of the time
SETTINGS = Settings(max_batch=IMAGES, batch_wait_seconds=0.0)


def throughput(name: str, rounds: int) -> Case:
    """Returns the share of the bare network's requests per second that the service keeps; both take turns."""
    bench = NETWORKS[name]
    guard = noise_guard(bench)
    guards = {"service": guard, "bare": BareGuard(guard.detector, guard.familiarity, guard.calibration)}
    turns: dict[str, list[dict[str, float]]] = {each: [] for each in guards}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        body = Path(folder) / "body"
        length = _write_request(body, bench)
        addresses = {
            each: stack.enter_context(_run_service(_InMemory(Path(), guard.classifier.module, guard=guards[each])))
            for each in guards
        }
        for turn in range(min(rounds, 7) + 1):
            for each, address in addresses.items():
                figures = _ask_from_another_process(address, body, length, SECONDS if rounds > 2 else QUICK_SECONDS)
                if turn > 0:  # the first one warms up
                    turns[each].append(figures)
    figures = {
        f"{each}_{figure}": median(turn[figure] for turn in of)
        for each, of in turns.items()
        for figure in ("requests_per_second", "p50_ms", "p99_ms")
    }
    pairs = zip(turns["service"], turns["bare"], strict=True)
    figures["share"] = median(one["requests_per_second"] / other["requests_per_second"] for one, other in pairs)
    sentence = (
        f"requests per second of the service beside the bare network behind the same server, {name}, {IMAGES} images a "
        "request: {bare_requests_per_second} → {service_requests_per_second}; p99 {bare_p99_ms} → {service_p99_ms} ms"
    )
    return Case(f"service/{name}", sentence, figures, "share", "number", LIMITS[name], "at least")


class BareGuard(bf.Guard):
    """The network without its detector: all images are accepted."""

    def judge(self, images: Sequence[Tensor], **options: Any) -> bf.Verdicts:
        with torch.no_grad():
            logits = self.classifier.logits(torch.stack(list(images))).numpy()
        zeros = np.zeros(len(images))
        return bf.Verdicts(
            label=logits.argmax(1),
            accepted=zeros == 0,
            reason=np.full(len(images), ""),
            score=zeros,
            unfamiliarity=zeros,
            p_value=zeros + 1,
            threshold=0.0,
            logits=logits,
            features=zeros.reshape(-1, 1),
        )


@dataclass(frozen=True)
class _InMemory(GuardFile):
    """A guard that needs no file."""

    guard: bf.Guard = field(kw_only=True)

    def load(self) -> LoadedGuard:
        return LoadedGuard(self.guard, type(self.guard).__name__)


@contextmanager
def _run_service(file: GuardFile) -> Iterator[str]:
    """Yields the address of a service in a thread of this process."""
    listener, server = open_socket("127.0.0.1", 0), make_server(make_app(Engine(file, SETTINGS)), SETTINGS)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def noise_guard(bench: BenchNetwork) -> bf.Guard:
    """MBF fitted to noise: what scoring takes does not depend on what was learned."""
    draw = torch.Generator().manual_seed(1)
    clean, noisy, other, calibration = torch.rand((4, SOURCES, *bench.images().shape[1:]), generator=draw)
    examples = Examples(
        clean=clean,
        noisy={"noisy": noisy},
        adversarial={"bim": other**1.2},
        success={"bim": torch.ones(SOURCES, dtype=torch.bool)},
        labels=torch.zeros(SOURCES, dtype=torch.int64),
        ids=tuple(map(str, range(SOURCES))),
        noise_levels={"noisy": 0.1},
        counts=(("drawn", SOURCES),),
        seed=0,
    )
    detector = bf.fit("mbf", bench.classifier(), examples, C=1.0, gamma="scale", show_progress=False)
    return bf.Guard.calibrated(detector, calibration, known=clean, show_progress=False)


def _write_request(path: Path, bench: BenchNetwork) -> int:
    """Writes a request with its tensor as bytes; returns the length of its JSON."""
    images = bench.images()[:IMAGES].numpy()
    tensor = {"name": "images", "shape": list(images.shape), "datatype": "FP32"}
    text = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": images.nbytes}}]}).encode()
    path.write_bytes(text + images.tobytes())
    return len(text)


def _ask_from_another_process(address: str, body: Path, length: int, seconds: float) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.service", address, str(body), str(length), str(seconds)]
    root = Path(__file__).parents[1]
    printed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(printed)
    return figures


def ask(address: str, body: Path, length: str, limit: float) -> dict[str, float]:
    """Returns requests per second, and the median and 99th percentile of their milliseconds."""
    content = body.read_bytes()
    with ThreadPoolExecutor(CLIENTS) as pool:
        start = time.perf_counter()
        jobs = [pool.submit(_ask_as_client, address, content, length, start + limit) for _ in range(CLIENTS)]
        times = list(chain.from_iterable(job.result() for job in jobs))
        seconds = time.perf_counter() - start
    cuts = quantiles(times, n=100, method="inclusive")
    return {"requests_per_second": len(times) / seconds, "p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98]}


def _ask_as_client(address: str, content: bytes, length: str, until: float) -> list[float]:
    """Seconds of each request of one client."""
    times: list[float] = []
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    headers = {"Inference-Header-Content-Length": length, "Content-Type": "application/octet-stream"}
    while len(times) < MAX_REQUESTS and (len(times) < 2 or time.perf_counter() < until):
        start = time.perf_counter()
        connection.request("POST", "/v2/models/guard/infer", content, headers)
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise RuntimeError(f"the service answered {response.status}")
        times.append(time.perf_counter() - start)
    connection.close()
    return times


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))))
