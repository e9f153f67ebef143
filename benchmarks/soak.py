"""Load, broken requests, reloads and killed clients against one service: `python -m benchmarks.soak --seconds 600`.

Prints what its process held and what was answered wrongly. The exit code is 1 after a 5xx, a lost or mixed answer, or
where memory or descriptors go on growing.
"""

import argparse
import gzip
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPConnection, HTTPException
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import numpy as np
from PIL import Image

import benfourier as bf
from benchmarks.service import noise_guard
from benchmarks.setup import NETWORKS
from benfourier.models.weights import save_weights

NETWORK, INFER = "cifar-resnet20", "/v2/models/guard/infer"
IMAGES = 40  # different ones that clients ask about
CLIENTS = 3
MEGABYTES = 8  # of a body
RELOAD_SECONDS = 5.0
TOLERANCE = 1e-3  # of a score: rounding in batches of other sizes moves these by 2e-5; 99 of 100 pairs differ by more
MOST_GROWTH = 1.1  # of memory, from the end of the first minute to the end
RATES = (0.1, 0.3)  # of the guards that take turns
PAGES = ("/v1/guard", "/metrics", "/", "/v2/health/ready", "/openapi.json", "/nothing")


@dataclass
class Clients:
    """What asks a service, and counts its answers by status, with those that were lost or somebody else's."""

    host: str
    port: int
    guards: list[bf.Guard]  # that take turns in the service
    file: Path  # that holds one of them
    process: int  # id of the service
    stop: Event = field(default_factory=Event)
    counts: "Counter[str]" = field(default_factory=Counter)

    def __post_init__(self) -> None:
        # each of one colour: the scores of noise are all the same, and an answer to another image would look right
        self.images = self.guards[0].classifier.noise(IMAGES, seed=1)[..., :1, :1].expand(-1, -1, 32, 32)
        self.verdicts = self.guards[0].check(self.images, show_progress=False)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """Returns status and body of an answer; 0 if there is none."""
        connection = HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            status, content = response.status, response.read()
        except (OSError, HTTPException):
            status, content = 0, b""
        connection.close()
        self.counts[f"{status // 100}xx" if status else "no answer"] += 1
        return status, content

    def ask_rightly(self, draw: random.Random) -> None:
        """Asks about some images: the answer must have the request's id, and their labels and scores."""
        rows, number = [draw.randrange(IMAGES) for _ in range(draw.randint(1, 8))], str(draw.random())
        body = json.dumps({"id": number, "inputs": [self._tensor(rows)]}).encode()
        status, content = self.ask("POST", INFER, body)
        if status != 200:
            self.counts["lost"] += 1
            return
        answer = json.loads(content)
        column = {output["name"]: np.array(output["data"]) for output in answer["outputs"]}
        right = answer["id"] == number and np.array_equal(column["label"], self.verdicts.label[rows])
        self.counts["mixed"] += not (right and np.abs(column["score"] - self.verdicts.score[rows]).max() < TOLERANCE)
        self.ask("GET", draw.choice(PAGES))

    def ask_wrongly(self, draw: random.Random) -> None:
        """Sends what the service must refuse, or what is no HTTP at all."""
        right = json.dumps({"inputs": [self._tensor([0])]}).encode()
        parts = (MEGABYTES * 2**20 - 1000) // 13
        kinds: dict[bytes, dict[str, str]] = {
            right[: draw.randrange(len(right))]: {},
            draw.randbytes(draw.randrange(2000)): {
                "Content-Type": draw.choice(["application/octet-stream", "a/b", ""])
            },
            b"x" * (MEGABYTES * 2**20 + 1): {},
            gzip.compress(b'{"outputs":[' + b'{"name":"a"},' * parts, 1): {"Content-Encoding": "gzip"},
            b'{"inputs":' + b"[" * draw.randrange(10**5): {},
            right.replace(b"0.", b"7.", 9): {},
            _form(draw.choice([64, 1000, 4096]), draw.randint(1, 60)): {
                "Content-Type": "multipart/form-data; boundary=b"
            },
        }
        body, headers = draw.choice(list(kinds.items()))
        status, _ = self.ask("POST", draw.choice([INFER, "/v1/check"]), body, **headers)
        self.counts["broken, taken"] += status == 200
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=10) as raw:
            raw.sendall(draw.randbytes(100) + b"\r\n\r\n")

    def leave_early(self, draw: random.Random) -> None:
        """Sends a request, or a part of it, and is killed."""
        body = json.dumps({"inputs": [self._tensor(list(range(8)))]}).encode()
        fields = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        head = f"POST {INFER} HTTP/1.1\r\n{fields}\r\n\r\n".encode()
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=10) as victim:
            victim.sendall((head + body)[: draw.choice([len(head) - 5, len(head) + 99, len(head) + len(body)])])
            victim.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, as at kill -9
        self.counts["killed clients"] += 1
        self.stop.wait(0.05)

    def reload(self, draw: random.Random) -> None:
        """Puts another guard in the file, sometimes a broken one in place before, and asks to load it."""
        if draw.random() < 0.5:
            self.file.write_bytes(self.file.read_bytes()[: draw.randrange(5000)])
            os.kill(self.process, signal.SIGHUP)
            self.stop.wait(0.1)
        draw.choice(self.guards).save(self.file)
        os.kill(self.process, signal.SIGHUP)
        self.counts["reloads"] += 1
        self.stop.wait(RELOAD_SECONDS)

    def _tensor(self, rows: list[int]) -> dict[str, Any]:
        values = self.images[rows]
        return {"name": "images", "shape": list(values.shape), "datatype": "FP32", "data": values.flatten().tolist()}

    def run(self, work: Callable[[random.Random], None], seed: int) -> None:
        """Repeats one kind of work until all stop."""
        draw = random.Random(seed)  # noqa: S311, to repeat it
        while not self.stop.is_set():
            work(draw)


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the load lasts; by default 600")
    seconds = parser.parse_args().seconds
    guard = noise_guard(NETWORKS[NETWORK])
    with TemporaryDirectory() as folder:
        file, weights, log = Path(folder, "guard.bf"), Path(folder, "w.safetensors"), Path(folder, "log")
        save_weights(guard.classifier.module, weights)
        guard.save(file)
        words = ["serve", file, "-m", NETWORK, "-w", weights, "--port", "0", "--max-megabytes", MEGABYTES]
        command = [sys.executable, "-c", "from benfourier.cli.main import main; main()", *map(str, words)]
        with log.open("w") as out, subprocess.Popen(command, stderr=out) as service:
            try:
                port = _port(log, service)
                clients = Clients("127.0.0.1", port, [guard.at_rate(rate) for rate in RATES], file, service.pid)
                figures = _load(clients, service.pid, seconds)
                service.terminate()
                figures["exit code"] = service.wait(60)
            finally:
                service.kill()
        figures["faults in the log"] = log.read_text(encoding="utf-8").count('"request failed"')
    for name, value in figures.items():
        print(f"{name:24}{value:>12,}" if isinstance(value, int) else f"{name:24}{value:>12,.1f}")
    grown = figures["final MB"] > MOST_GROWTH * figures["MB after a minute"]
    wrong = sum(figures[name] for name in ("5xx", "lost", "mixed", "no answer", "broken, taken", "exit code"))
    return int(grown or wrong > 0 or figures["faults in the log"] > 0)


@cache
def _form(side: int, count: int) -> bytes:
    """A small form with files of large images, which are not of the network's size."""
    content = BytesIO()
    Image.new("RGBA", (side, side), (9, 9, 9, 255)).save(content, "PNG")
    head = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n'
    return (head + content.getvalue() + b"\r\n") * count + b"--b--\r\n"


def _load(clients: Clients, process: int, seconds: float) -> dict[str, float]:
    """What was counted under load, and what the process held meanwhile and two seconds later."""
    kinds = [clients.ask_rightly] * CLIENTS + [clients.ask_wrongly, clients.leave_early, clients.reload]
    threads = [Thread(target=clients.run, args=(kind, seed)) for seed, kind in enumerate(kinds)]
    descriptors, after_a_minute, start = [_descriptors(process)], 0.0, time.monotonic()
    for thread in threads:
        thread.start()
    while (now := time.monotonic() - start) < seconds:
        time.sleep(min(1.0, seconds - now))
        descriptors.append(_descriptors(process))
        if now <= min(60.0, seconds / 2):
            after_a_minute = _megabytes(process, "VmRSS")
    clients.stop.set()
    for thread in threads:
        thread.join()
    time.sleep(2)
    names = ("2xx", "4xx", "5xx", "no answer", "lost", "mixed", "broken, taken", "killed clients", "reloads")
    return {
        **{name: clients.counts[name] for name in names},
        "MB after a minute": after_a_minute,
        "peak MB": _megabytes(process, "VmHWM"),
        "final MB": _megabytes(process, "VmRSS"),
        "descriptors at first": descriptors[0],
        "most descriptors": max(descriptors),
        "descriptors at last": _descriptors(process),
    }


def _port(log: Path, service: "subprocess.Popen[bytes]") -> int:
    """The port that the service's log names once it listens."""
    while service.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if '"listening"' in line and line.endswith("}"):
                return int(json.loads(line)["address"].rpartition(":")[2])
        time.sleep(0.1)
    raise RuntimeError(f"the service ended with {service.returncode}: {log.read_text(encoding='utf-8')}")


def _megabytes(process: int, name: str) -> float:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def _descriptors(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


if __name__ == "__main__":
    sys.exit(main())
