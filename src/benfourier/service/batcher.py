"""Batches: images of many requests, run together on one thread that alone uses the network."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from benfourier.service.settings import Settings
from benfourier.service.telemetry import log_count_faults, log_event

Result = TypeVar("Result")
T = TypeVar("T")


class QueueFullError(Exception):
    """No more images can wait; retry_seconds is a guess of when they can."""

    def __init__(self, message: str, retry_seconds: float) -> None:
        super().__init__(message)
        self.retry_seconds = retry_seconds


class BatcherClosedError(Exception):
    """No more images are taken."""


@dataclass(eq=False)
class _Request(Generic[Result]):
    """The images of one request in the queue."""

    images: Sequence[Tensor]
    bytes: int
    since: float
    done: "asyncio.Future[Result]"


class Batcher(Generic[Result]):
    """Takes images, forms batches, hands out results.

    A batch is run once it is full or its first images have waited long enough; while one runs the next gathers. Work
    of a client that has left, or whose time is up, never begins.
    """

    def __init__(
        self, run: Callable[[list[Tensor]], Result], settings: Settings, on_batch: Callable[[int, list[float]], None]
    ) -> None:
        self._run = run  # computes the result of a batch, on the thread below; its slices are the results of requests
        self._settings = settings
        self._on_batch = on_batch  # called with the size of a batch and the seconds that each of its requests waited
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batcher")
        self._queue: dict[_Request[Result], None] = {}  # oldest first, and quick to leave
        self._wake = asyncio.Event()
        self._closed = False
        self._seconds_per_image = 0.0  # of the last batch
        self.accepted = 0  # requests taken

    @property
    def waiting(self) -> int:
        """Number of images in the queue; may be read from any thread."""
        # a copy, made in one step: the event loop may change the queue while another thread reads it
        return sum(len(request.images) for request in list(self._queue))

    async def submit(self, images: Sequence[Tensor], deadline: float) -> Result:
        """Returns the result of the images of one request; TimeoutError at the deadline, on the event loop's clock."""
        if self._closed:
            raise BatcherClosedError
        loop, waiting, limit = asyncio.get_running_loop(), self.waiting, self._settings.max_queue
        retry = waiting * self._seconds_per_image
        if waiting + len(images) > limit:
            raise QueueFullError(f"{waiting} images wait, {limit} may", retry)
        size = sum(image.nbytes for image in images)
        if size + sum(request.bytes for request in self._queue) > self._settings.max_memory_bytes:
            raise QueueFullError("too many large images wait", retry)
        request = _Request[Result](images, size, loop.time(), loop.create_future())
        self._queue[request] = None
        self.accepted += 1
        self._wake.set()
        try:
            async with asyncio.timeout_at(deadline):
                return await request.done
        finally:
            self._queue.pop(request, None)

    async def exclusive(self, work: Callable[[], T]) -> T:
        """Returns the result of a call that needs the network for itself; it is made between two batches."""
        return await run_on(self._thread, work)

    async def run_forever(self) -> None:
        """Runs batches until the batcher is closed and the queue is empty; a fault is logged and closes it too."""
        try:
            while requests := await self._next_batch():
                await self._run_batch(requests)
        except Exception as error:
            log_event("judging failed", level=logging.CRITICAL, trace=True, reason=f"{type(error).__name__}: {error}")
        finally:
            self._closed = True
            self._thread.shutdown(wait=False)

    def close(self) -> None:
        """Takes no more images; `run_forever` finishes those in the queue and returns."""
        self._closed = True
        self._wake.set()

    async def _next_batch(self) -> list[_Request[Result]]:
        """The requests of the next batch, oldest first; none if the batcher is closed and the queue empty."""
        settings = self._settings
        while not self._closed and self.waiting < settings.max_batch:
            oldest = next(iter(self._queue), None)
            until = math.inf if oldest is None else oldest.since + settings.batch_wait_seconds
            if asyncio.get_running_loop().time() >= until:
                break
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._wake.wait()
        requests: list[_Request[Result]] = []
        count = 0
        for request in list(self._queue):
            count += len(request.images)
            if requests and count > settings.max_batch:
                break
            del self._queue[request]
            requests.append(request)
        return requests

    async def _run_batch(self, requests: list[_Request[Result]]) -> None:
        """Answers the requests of one batch; if it fails each is tried alone, so that one bad request fails alone."""
        loop = asyncio.get_running_loop()
        images = [image for request in requests for image in request.images]
        start = loop.time()
        try:
            result: Any = await run_on(self._thread, lambda: self._run(images))
        except Exception as error:  # it belongs to the request, whose caller handles it
            if len(requests) > 1:
                for request in requests:
                    await self._run_batch([request])
            elif not requests[0].done.done():
                requests[0].done.set_exception(error)
            return
        self._seconds_per_image = (loop.time() - start) / len(images)
        last = 0
        for request in requests:
            first, last = last, last + len(request.images)
            if not request.done.done():
                request.done.set_result(result[first:last])
        with log_count_faults():
            self._on_batch(len(images), [start - request.since for request in requests])


async def run_on(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """Returns the result of a call on a thread of a pool; code in it that calls sys.exit fails this call only."""

    def run() -> T:
        try:
            return work()
        except SystemExit as error:  # asyncio would end the whole server
            raise RuntimeError(f"it called sys.exit({error.code!r})") from error

    return await asyncio.get_running_loop().run_in_executor(pool, run)
