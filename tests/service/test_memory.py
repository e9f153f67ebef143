"""What small requests can make a service take: memory of its whole process, and the time of others."""

import gzip
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.service.serving import INFER, asked, clean
from tests.service.test_serve_verb import folder, serving

__all__ = ["folder"]  # the fixture
MEGABYTES = 16  # of a body, as unpacked
LIMIT = MEGABYTES * 2**20
BATCH = 16 * 2**20  # bytes that judging a batch of small digits may take beside the bodies, and what malloc keeps
HEADERS = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
# each fills the limit, and was built into Python objects of many times its size before anything was checked
BODIES = {
    "outputs": (b'{"outputs": [', b'{"name":"a"},', b'{"name":"a"}]}'),
    "nested data": (
        b'{"inputs": [{"name":"images","shape":[1,1,8,8],"datatype":"FP32","data":[',
        b"[[]],",
        b"[[]]]}]}",
    ),
}


def packed(before: bytes, part: bytes, after: bytes) -> bytes:
    return gzip.compress(before + part * ((LIMIT - 1000) // len(part)) + after)


def peak(process: int) -> int:
    """Bytes that a process has held at most since `forget_peak`."""
    return _kilobytes(process, "VmHWM") * 1024


def forget_peak(process: int) -> int:
    """Starts the peak of a process anew; returns the bytes that it holds."""
    Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")
    return _kilobytes(process, "VmRSS") * 1024


def _kilobytes(process: int, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


@contextmanager
def health_asked(address: str) -> Iterator[list[float]]:
    """Asks whether a service is alive while the block runs; yields the seconds that each answer took."""
    done, seconds = threading.Event(), list[float]()

    def ask() -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            while not done.is_set():
                start = time.monotonic()
                assert client.get("/v2/health/live").status_code == 200
                seconds.append(time.monotonic() - start)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield seconds
        finally:
            done.set()
            asking.result()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process has held at most")
def test_small_bodies_that_unpack_to_many_parts_take_three_times_the_limit_at_most_and_health_answers(
    folder: Path,
) -> None:
    with (
        serving(folder, "--max-megabytes", str(MEGABYTES)) as (process, address),
        httpx.Client(base_url=address, timeout=60, headers={"Authorization": "Bearer t"}) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        # the first requests make what later ones use again
        assert client.post(INFER, json=asked(clean(8))).status_code == 200
        for name, parts in BODIES.items():
            body = packed(*parts)
            assert len(body) < LIMIT / 50, name
            before = forget_peak(process.pid)
            post = partial(client.post, INFER, content=body, headers=HEADERS)
            with health_asked(address) as seconds:
                answers = [each.result() for each in [pool.submit(post) for _ in range(3)]]
            assert [answer.status_code for answer in answers] == [400] * 3, name
            assert peak(process.pid) - before <= 3 * LIMIT + BATCH, name
            assert max(seconds) < 2, name
