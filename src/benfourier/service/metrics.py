"""Counters that Prometheus reads."""

from collections.abc import Callable, Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from benfourier.guard.guard import Guard
from benfourier.service.judge import Judged

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


class Metrics:
    """All counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "benfourier_requests",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "benfourier_request_seconds", "Time of requests.", ["route"], buckets=SECONDS, registry=self.registry
        )
        self._images = Counter("benfourier_images", "Images judged, by verdict.", ["verdict"], registry=self.registry)
        self._batches = Histogram(
            "benfourier_batch_images",
            "Images judged at once.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=self.registry,
        )
        self._waits = Histogram(
            "benfourier_queue_seconds", "Time in the queue.", buckets=SECONDS, registry=self.registry
        )
        self._reloads = Counter("benfourier_reloads", "New guards, by outcome.", ["outcome"], registry=self.registry)
        self._threshold = Gauge("benfourier_threshold", "Above which a score is rejected.", registry=self.registry)
        self._guard = Gauge(
            "benfourier_guard", "1 for the guard at work.", ["version", "detector"], registry=self.registry
        )
        self._scores: Histogram | None = None

    def guard(self, guard: Guard, version: str) -> None:
        """Notes the guard at work; the first one's clean scores say where the score's buckets end."""
        self._threshold.set(guard.threshold.value)
        self._guard.clear()
        self._guard.labels(version, guard.detector.method.name).set(1)
        if self._scores is None:
            ends = {*np.quantile(guard.calibration.scores, QUANTILES).tolist(), guard.threshold.value}
            self._scores = Histogram(
                "benfourier_score", "Scores of images.", buckets=sorted(ends), registry=self.registry
            )

    def gauge(self, name: str, told: str, value: Callable[[], float]) -> None:
        """Adds a gauge that is asked when it is read."""
        Gauge(f"benfourier_{name}", told, registry=self.registry).set_function(value)

    def reload(self, outcome: str) -> None:
        """Counts a new guard, "done" or "failed"."""
        self._reloads.labels(outcome).inc()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request that has its answer."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, images: int, waits: Sequence[float]) -> None:
        """Counts a batch and how long its requests waited."""
        self._batches.observe(images)
        for wait in waits:
            self._waits.observe(max(0.0, wait))

    def judged(self, found: Judged) -> None:
        """Counts verdicts and scores."""
        rejected = int((~found.accepted).sum())
        self._images.labels("accepted").inc(len(found) - rejected)
        self._images.labels("rejected").inc(rejected)
        if self._scores is not None:
            for score in found.score:
                self._scores.observe(float(score))

    def text(self) -> bytes:
        """Returns all of them as Prometheus reads them."""
        return generate_latest(self.registry)
