"""Asks a service as fast as a few clients can, bounded in count and time; prints what it measured as JSON."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import chain
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlsplit

MOST = 150  # requests of one client


def main() -> None:
    """Prints requests per second, their number, and the median and 99th percentile of their milliseconds."""
    address, body, length, clients, seconds = sys.argv[1:]
    content, count = Path(body).read_bytes(), int(clients)
    with ThreadPoolExecutor(count) as pool:
        start = time.perf_counter()
        jobs = [pool.submit(_ask, address, content, length, start + float(seconds)) for _ in range(count)]
        times = list(chain.from_iterable(job.result() for job in jobs))
        took = time.perf_counter() - start
    cuts = quantiles(times, n=100, method="inclusive")
    figures = {"requests_per_second": len(times) / took, "requests": len(times)}
    print(json.dumps({**figures, "p50_ms": 1000 * cuts[49], "p99_ms": 1000 * cuts[98]}))


def _ask(address: str, content: bytes, length: str, until: float) -> list[float]:
    """Seconds of each request of one client."""
    times: list[float] = []
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    headers = {"Inference-Header-Content-Length": length, "Content-Type": "application/octet-stream"}
    while len(times) < MOST and (len(times) < 2 or time.perf_counter() < until):
        start = time.perf_counter()
        connection.request("POST", "/v2/models/guard/infer", content, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"the service answered {answer.status}")
        times.append(time.perf_counter() - start)
    connection.close()
    return times


if __name__ == "__main__":
    main()
