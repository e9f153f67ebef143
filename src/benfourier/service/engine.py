"""Images of many requests, judged in batches by one thread that alone touches the network."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from benfourier.service import refusals
from benfourier.service.judge import Judge, Judged
from benfourier.service.metrics import Metrics
from benfourier.service.settings import Settings

Result = TypeVar("Result")


@dataclass(eq=False)
class _Job:
    """The images of one request that waits."""

    images: Sequence[Tensor]
    bytes: int
    since: float
    done: asyncio.Future[Judged] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Engine:
    """Takes images, forms batches, hands out what is said of them.

    A batch is judged once it is full or its first images have waited long enough; while one is judged the next
    gathers. Work whose client has gone or whose time is up is never begun.

    Args:
        settings: batch, wait, queue, held and seconds count here.
        metrics: are told of every batch.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="judge")
        self._waiting: dict[_Job, None] = {}
        self._news = asyncio.Event()
        self._closing = False
        self._pace = 0.0  # seconds per image, lately
        self.judge: Judge | None = None
        self.accepted = 0  # requests taken
        self.waiting = 0  # images in the queue
        self._bytes = 0  # of them

    async def answer(self, images: Sequence[Tensor], deadline: float) -> Judged:
        """Returns what is said of checked images (C, H, W), or raises a refusal.

        Args:
            images: of one request.
            deadline: on the event loop's clock.
        """
        if self._closing or self.judge is None:
            raise refusals.closing()
        if self.waiting + len(images) > self._settings.queue:
            raise refusals.busy(f"{self.waiting} images wait, {self._settings.queue} may", self.waiting * self._pace)
        size = sum(image.nbytes for image in images)
        if size > self._settings.held:
            raise refusals.too_large(
                f"the images take {size} bytes of memory; at most {self._settings.held} are allowed"
            )
        if self._bytes + size > self._settings.held:
            raise refusals.busy("too many large images wait", self.waiting * self._pace)
        job = _Job(images, size, asyncio.get_running_loop().time())
        self._waiting[job] = None
        self.waiting += len(images)
        self._bytes += size
        self.accepted += 1
        self._news.set()
        try:
            async with asyncio.timeout_at(deadline):
                return await job.done
        except TimeoutError as error:
            raise refusals.late(self._settings.seconds) from error
        finally:
            self._leave(job)

    async def between(self, work: Callable[[], Result]) -> Result:
        """Returns what a call returns that needs the network for itself; it is made between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def run(self) -> None:
        """Judges batches until the engine is closed and nothing waits."""
        while jobs := await self._batch():
            await self._judge(jobs)

    def close(self) -> None:
        """Lets `run` come to its end; what was taken is still judged, nothing more is taken."""
        self._closing = True
        self._news.set()

    def free(self) -> None:
        """Ends the thread, once `run` has come to its end."""
        self._thread.shutdown()

    async def _batch(self) -> list[_Job]:
        """The next jobs; none if the engine is closed."""
        loop, most = asyncio.get_running_loop(), self._settings.batch
        while self._waiting or not self._closing:
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                continue
            until = next(iter(self._waiting)).since + self._settings.wait
            while self.waiting < most and not self._closing and loop.time() < until:
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(until):
                        await self._news.wait()
            taken = self._taken(most)
            if taken:  # else all clients have left
                return taken
        return []

    def _taken(self, most: int) -> list[_Job]:
        """Jobs out of the queue, oldest first, as many as make a batch; a large one makes a batch of its own."""
        taken: list[_Job] = []
        count = 0
        for job in list(self._waiting):
            if taken and count + len(job.images) > most:
                break
            self._leave(job)
            taken.append(job)
            count += len(job.images)
        return taken

    def _leave(self, job: _Job) -> None:
        """Takes a job out of the queue, if it is still there."""
        if job in self._waiting:
            del self._waiting[job]
            self.waiting -= len(job.images)
            self._bytes -= job.bytes

    async def _judge(self, jobs: list[_Job]) -> None:
        """Answers the jobs of one batch; if that fails each is tried alone, so that only the culprit suffers."""
        loop, judge = asyncio.get_running_loop(), self.judge
        assert judge is not None
        images = [image for job in jobs for image in job.images]
        start = loop.time()
        try:
            found = await loop.run_in_executor(self._thread, judge.judge, images)
        except Exception as error:
            if len(jobs) > 1:
                for job in jobs:
                    await self._judge([job])
            elif not jobs[0].done.done():
                jobs[0].done.set_exception(error)
            return
        self._pace = (loop.time() - start) / len(images)
        self._metrics.batch(len(images), [start - job.since for job in jobs])
        first = 0
        for job in jobs:
            if not job.done.done():
                job.done.set_result(found.rows(first, len(job.images)))
            first += len(job.images)
