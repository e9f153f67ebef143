"""The engine: the guard at work, its reloading, its batches and its drift."""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from torch import Tensor, nn

from benfourier.errors import BenfourierError, StoreError
from benfourier.guard.drift import Drift
from benfourier.guard.guard import Guard, load_guard
from benfourier.guard.verdicts import Verdicts
from benfourier.models.classifier import Classifier
from benfourier.service.batcher import Batcher, BatcherClosedError, QueueFullError, run_on
from benfourier.service.http_errors import UNAVAILABLE, too_many_requests
from benfourier.service.settings import Settings
from benfourier.service.telemetry import Metrics, log_count_faults, log_event
from benfourier.service.uploads import LargeRequestError, unpack

READERS = 2  # threads that unpack, parse and decode small requests, and write responses
# Larger requests, by this share of the body limit in bytes or pixels, have one thread of their own: they hold up only
# each other, and one at a time takes its three times the body limit.
SMALL_SHARE = 1 / 64
MOST_PACKING = 1032  # bytes that one of deflate unpacks to at most
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class LoadedGuard:
    """A guard and its version, the beginning of the SHA-256 of its file."""

    guard: Guard
    version: str

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images; -1 where any will do."""
        height, width = self.guard.classifier.size or (-1, -1)
        return self.guard.classifier.channels or -1, height, width

    @cached_property
    def clean_evidence(self) -> list[dict[str, Any]]:
        """Layer, mean and deviation of clean images as responses show them; the same for every image."""
        return [
            {"layer": layer.layer, "mean": short_numbers(layer.mean), "deviation": short_numbers(layer.deviation)}
            for layer in self.guard.evidence(self.guard.calibration.mean)
        ]


@dataclass(frozen=True)
class GuardFile:
    """A guard's file and the network it guards."""

    path: Path  # of what `Guard.save` wrote
    module: nn.Module
    rate: float | None = None  # another false-alarm rate than the file's
    second: nn.Module | Classifier | None = None  # the other network of second-opinion

    def load(self) -> LoadedGuard:
        """Returns the guard in the file, after one trial image if their size is known: the first pass is slow."""
        try:
            digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
            guard = load_guard(self.path, self.module, second=self.second)
            digest_after = hashlib.sha256(self.path.read_bytes()).hexdigest()
        except OSError as error:
            raise StoreError(f"{self.path}: it cannot be opened ({error}); check the name and permissions") from error
        if digest_after != digest:  # the version would name another guard than the one at work
            raise StoreError(f"{self.path}: it changed while it was read; put new files in place whole")
        if self.rate is not None:
            guard = guard.at_rate(self.rate)
        if guard.classifier.size and guard.classifier.channels:
            guard.judge(list(guard.classifier.noise(1)))
        return LoadedGuard(guard, digest[:12])

    def stamp(self) -> object:
        """Returns a value that changes with the file; None while there is none."""
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


@dataclass(frozen=True, eq=False)
class CheckOutcome:
    """Verdicts, and the guard that gave them; another one may be at work when the response is written."""

    loaded: LoadedGuard
    verdicts: Verdicts

    def __getitem__(self, rows: slice) -> "CheckOutcome":
        return CheckOutcome(self.loaded, self.verdicts[rows])


class Engine:
    """Takes checked images and returns the verdicts of the guard at work; a bad file is an error at once."""

    def __init__(self, file: GuardFile, settings: Settings) -> None:
        self.settings = settings
        self._file = file
        self._stamp = file.stamp()
        self._loaded = file.load()
        self.drift = Drift(self._loaded.guard.calibration.scores, settings.drift_window)  # of this guard's scores
        self.metrics = Metrics(self._loaded.guard)
        self.batcher = Batcher[CheckOutcome](self._run, settings, self.metrics.count_batch)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        self._large_reader = ThreadPoolExecutor(1, thread_name_prefix="large-reader")
        self._batches: asyncio.Task[None] | None = None
        self.metrics.add_gauge("queue_images", "Images that wait.", lambda: self.batcher.waiting)
        self.metrics.add_gauge("drift_distance", "KS distance of recent scores.", lambda: self.drift.test().distance)
        self.metrics.add_gauge("drift_p", "p of that distance.", lambda: self.drift.test().p)
        self.metrics.add_gauge("drift_scores", "Recent scores compared.", lambda: self.drift.test().scores)

    @property
    def current(self) -> LoadedGuard:
        """The guard at work; 503 if batches are no longer run."""
        if self._batches is not None and self._batches.done():
            raise HTTPException(503, UNAVAILABLE)
        return self._loaded

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Serves while the block runs, then finishes the requests in the queue."""
        self._use(self._loaded)
        self._batches = asyncio.create_task(self.batcher.run_forever())
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            self.batcher.close()
            await self._batches
            self._readers.shutdown()
            self._large_reader.shutdown()
            log_event("stopped", requests=self.batcher.accepted)

    async def check(self, images: Sequence[Tensor], request: Request) -> CheckOutcome:
        """Returns the verdicts on checked images (C, H, W); if the client leaves before, the images are dropped."""

        async def client_leaves() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        submission = asyncio.create_task(self.batcher.submit(images, request.state.deadline))
        left = asyncio.create_task(client_leaves())
        try:
            await asyncio.wait({submission, left}, return_when=asyncio.FIRST_COMPLETED)
            if not submission.done():
                raise ClientDisconnect
            outcome = submission.result()
        except BatcherClosedError as error:
            raise HTTPException(503, UNAVAILABLE) from error
        except QueueFullError as error:
            raise too_many_requests(str(error), error.retry_seconds) from error
        except BenfourierError as error:
            raise HTTPException(422, str(error)) from error
        finally:
            submission.cancel()
            left.cancel()
        with log_count_faults():
            self.metrics.count_verdicts(outcome.verdicts)
        if outcome.loaded is self._loaded:
            self.drift.add(outcome.verdicts.score)
        return outcome

    async def read(self, request: Request, parse: Callable[[bytearray, int | None], T], limit: int | None = None) -> T:
        """Returns what a reader thread parses from an unpacked body of at most limit bytes.

        The second argument of parse is the number of pixels that it may decode, beyond which it raises
        LargeRequestError; None for any.
        """
        body, encoding = bytearray(), request.headers.get("content-encoding", "")
        async for chunk in request.stream():  # RequestLimits bounds it
            body += chunk
        most, small = limit or self.settings.max_body_bytes, int(SMALL_SHARE * self.settings.max_body_bytes)
        if len(body) * (MOST_PACKING if encoding else 1) <= small:
            with suppress(LargeRequestError):
                copy = bytearray(body)
                return await self.in_reader_thread(lambda: parse(unpack(copy, encoding, most), small), request)
        async with asyncio.timeout_at(request.state.deadline):
            return await run_on(self._large_reader, lambda: parse(unpack(body, encoding, most), None))

    async def in_reader_thread(self, work: Callable[[], T], request: Request) -> T:
        """Returns the result of a short call that would block the event loop."""
        async with asyncio.timeout_at(request.state.deadline):
            return await run_on(self._readers, work)

    async def reload(self) -> bool:
        """Loads the guard's file again and puts it to work between two batches; a bad file changes nothing."""
        try:
            stamp = self._file.stamp()
            loaded = await self.batcher.exclusive(self._file.load)
            new, old = loaded.guard.classifier, self._loaded.guard.classifier
            if any(getattr(new, name) != getattr(old, name) for name in ("bounds", "size", "channels", "resize")):
                raise StoreError("the new guard takes other images than the old one; start the service again for it")
            self._stamp = stamp
            self._use(loaded)
        except Exception as error:  # whatever is wrong with the file, the old guard goes on
            unknown = not isinstance(error, BenfourierError)
            log_event("reload failed", level=logging.ERROR, trace=unknown, reason=f"{type(error).__name__}: {error}")
            self._count_reload("failed")
            return False
        self._count_reload("done")
        return True

    def _count_reload(self, outcome: str) -> None:
        with log_count_faults():
            self.metrics.reloads.labels(outcome).inc()

    def _run(self, images: list[Tensor]) -> CheckOutcome:
        loaded = self._loaded  # once per batch, so that an outcome names the guard that gave it
        if not self.settings.deterministic:
            return CheckOutcome(loaded, loaded.guard.judge(images))
        size = self.settings.max_batch
        return CheckOutcome(loaded, loaded.guard.judge(fill_batches(images, size), batch=size)[: len(images)])

    def _use(self, loaded: LoadedGuard) -> None:
        """Puts a guard to work, with a drift of its own."""
        self._loaded = loaded
        self.drift = Drift(loaded.guard.calibration.scores, self.settings.drift_window)
        with log_count_faults():
            self.metrics.set_guard(loaded.guard, loaded.version)
        name, threshold = loaded.guard.detector.method.name, str(loaded.guard.threshold)
        log_event("guard loaded", version=loaded.version, detector=name, threshold=threshold)

    async def _watch(self) -> None:
        """Looks at the file at intervals, and loads it once it has changed and stayed the same for one interval."""
        stamp = self._stamp
        while seconds := self.settings.watch_seconds:
            await asyncio.sleep(seconds)
            last, stamp = stamp, self._file.stamp()
            if stamp is not None and stamp == last and stamp != self._stamp:
                self._stamp = stamp  # a bad file is tried once
                await self.reload()


def fill_batches(images: Sequence[Tensor], size: int) -> list[Tensor]:
    """Returns images and copies behind them, so that those of each shape fill batches of a size.

    What a network's rounding does to an image depends on the size of its batch, not on what else is in it.
    """
    first = {image.shape: image for image in reversed(images)}
    counts = Counter(image.shape for image in images)
    return [*images, *(first[shape] for shape, count in counts.items() for _ in range(-count % size))]


def short_numbers(values: NDArray[np.float64]) -> list[float]:
    """Returns numbers with as many digits as a chart can show."""
    return [float(f"{value:.5g}") for value in values]
