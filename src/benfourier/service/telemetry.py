"""Telemetry: counters for Prometheus, and logs as one JSON object per line."""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from benfourier.guard.guard import Guard
from benfourier.guard.verdicts import Verdicts

LOGGER = logging.getLogger("benfourier.service")
CONNECTIONS = logging.getLogger("benfourier.service.connections")  # of events that clients can cause without a request
EVENTS_PER_MINUTE = 10  # of CONNECTIONS, and of asyncio's own
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


class Metrics:
    """All counters of one service, in a registry of their own."""

    def __init__(self, guard: Guard) -> None:
        own = self.registry = CollectorRegistry()
        self._requests = Counter(
            "benfourier_requests", "Requests by route and status.", ["method", "route", "status"], registry=own
        )
        self._seconds = Histogram(
            "benfourier_request_seconds", "Time of requests.", ["route"], buckets=SECONDS, registry=own
        )
        self._images = Counter("benfourier_images", "Images judged, by verdict.", ["verdict"], registry=own)
        self._batches = Histogram("benfourier_batch_images", "Images judged at once.", buckets=BATCHES, registry=own)
        self._waits = Histogram("benfourier_queue_seconds", "Time in the queue.", buckets=SECONDS, registry=own)
        self.reloads = Counter("benfourier_reloads", "New guards, by outcome.", ["outcome"], registry=own)
        self._threshold = Gauge("benfourier_threshold", "A score above it is rejected.", registry=own)
        self._guard = Gauge("benfourier_guard", "1 for the guard at work.", ["version", "detector"], registry=own)
        # the buckets stay those of the first guard
        ends = {*np.quantile(guard.calibration.scores, QUANTILES).tolist(), guard.threshold.value}
        self._scores = Histogram("benfourier_score", "Scores of images.", buckets=sorted(ends), registry=own)

    def set_guard(self, guard: Guard, version: str) -> None:
        """Shows the guard at work."""
        self._threshold.set(guard.threshold.value)
        self._guard.clear()
        self._guard.labels(version, guard.detector.method.name).set(1)

    def add_gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Adds a gauge whose value is computed when it is read."""
        Gauge(f"benfourier_{name}", description, registry=self.registry).set_function(value)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request that has its response."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_batch(self, images: int, waits: Sequence[float]) -> None:
        """Counts a batch and how long its requests waited."""
        self._batches.observe(images)
        for wait in waits:
            self._waits.observe(max(0.0, wait))

    def count_verdicts(self, verdicts: Verdicts) -> None:
        """Counts verdicts and scores."""
        rejected = int((~verdicts.accepted).sum())
        self._images.labels("accepted").inc(len(verdicts) - rejected)
        self._images.labels("rejected").inc(rejected)
        for score in verdicts.score:
            self._scores.observe(float(score))


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON; `extra={"fields": {...}}` stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class RateLimit(logging.Filter):
    """Lets some records of a logger pass in each minute; the next one says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._begin, self._passed, self._left_out = -math.inf, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the record passes."""
        now = time.monotonic()
        if now >= self._begin + 60:
            self._begin, self._passed = now, 0
        self._passed += 1
        if self._passed > EVENTS_PER_MINUTE:
            self._left_out += 1
            return False
        if self._left_out:
            record.fields = {**getattr(record, "fields", {}), "left_out": self._left_out}
            self._left_out = 0
        return True


def log_event(
    event: str, *, logger: logging.Logger = LOGGER, level: int = logging.INFO, trace: bool = False, **fields: object
) -> None:
    """Logs an event with its fields."""
    logger.log(level, event, extra={"fields": fields}, exc_info=trace)


@contextmanager
def log_count_faults() -> Iterator[None]:
    """Logs what goes wrong in the block: a counter that fails must not end a request, a batch or the service."""
    try:
        yield
    except Exception:
        log_event("counting failed", level=logging.ERROR, trace=True)


def configure_logging(level: str) -> None:
    """Sends the logs of the service and of uvicorn to standard error, as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    levels = {LOGGER.name: level.upper(), "uvicorn.error": "WARNING", "python_multipart": "ERROR"}
    levels |= {CONNECTIONS.name: level.upper(), "asyncio": "WARNING"}
    for name, least in levels.items():
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False
        logger.filters[:] = [RateLimit()] if name in (CONNECTIONS.name, "asyncio") else []
