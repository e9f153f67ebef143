"""One service: the judge, the engine that feeds it, and what is known of both."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from torch import Tensor

from benfourier.errors import BenfourierError, StoreError
from benfourier.guard.guard import Guard
from benfourier.service import refusals
from benfourier.service.bodies import Bodies
from benfourier.service.drift import Drift
from benfourier.service.engine import Engine
from benfourier.service.judge import Judge, Judged, Origin
from benfourier.service.logs import tell
from benfourier.service.metrics import Metrics
from benfourier.service.settings import Settings

READERS = 2  # threads that unpack, parse and decode
Result = TypeVar("Result")


class Service:
    """Takes checked images and says what the judge of the moment says of them.

    Args:
        origin: where the judge comes from.
        settings: limits and habits.
    """

    def __init__(self, origin: Origin, settings: Settings) -> None:
        self.settings = settings
        self.bodies = Bodies(settings)
        self.metrics = Metrics()
        self.engine = Engine(settings, self.metrics)
        self._origin = origin
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="reader")
        self._stamp: object = None
        self._judging: asyncio.Task[None] | None = None
        self._drift: Drift | None = None
        self.metrics.gauge("queue_images", "Images that wait.", lambda: self.engine.waiting)
        self.metrics.gauge("drift_distance", "KS distance of recent scores.", lambda: self.drift.tell().distance)
        self.metrics.gauge("drift_p", "p of that distance.", lambda: self.drift.tell().p)
        self.metrics.gauge("drift_scores", "Recent scores compared.", lambda: self.drift.tell().scores)

    @property
    def judge(self) -> Judge:
        """The judge of the moment, or a refusal while there is none or it is not asked any more."""
        if self.engine.judge is None or (self._judging is not None and self._judging.done()):
            raise refusals.closing()
        return self.engine.judge

    @property
    def guard(self) -> Guard:
        """The guard of the moment."""
        return self.judge.guard

    @property
    def drift(self) -> Drift:
        """Of the guard of the moment."""
        if self._drift is None:
            raise refusals.closing()
        return self._drift

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Loads the judge, serves while the block runs, then finishes what was taken."""
        await self._load()
        self._judging = asyncio.create_task(self._judge())
        watching = asyncio.create_task(self._watch(self.settings.watch)) if self.settings.watch else None
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
            self.engine.close()
            await self._judging
            self.engine.free()
            self._readers.shutdown()
            tell("stopped", requests=self.engine.accepted)

    async def _judge(self) -> None:
        """Judges until the engine is closed; if it breaks, the log says why and requests are refused."""
        try:
            await self.engine.run()
        except Exception as error:
            tell("judging failed", level=logging.CRITICAL, trace=True, reason=f"{type(error).__name__}: {error}")

    async def reload(self) -> bool:
        """Puts the guard that is there now in the old one's place, between two batches; a bad file changes nothing."""
        try:
            await self._load()
        except Exception as error:  # whatever is wrong with it, the old one goes on
            foreign = not isinstance(error, BenfourierError)
            tell("reload failed", level=logging.ERROR, trace=foreign, reason=f"{type(error).__name__}: {error}")
            self.metrics.reload("failed")
            return False
        self.metrics.reload("done")
        return True

    def deadline(self) -> float:
        """Until when a request that comes now must be answered, on the event loop's clock."""
        return asyncio.get_running_loop().time() + self.settings.seconds

    async def read(self, work: Callable[[], Result], deadline: float) -> Result:
        """Returns what a call returns that would keep the event loop from its work."""
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.get_running_loop().run_in_executor(self._readers, work)
        except TimeoutError as error:
            raise refusals.late(self.settings.seconds) from error

    async def judged(self, request: Request, images: Sequence[Tensor], deadline: float) -> Judged:
        """Returns what is said of checked images (C, H, W); if the client goes meanwhile, they are left alone."""
        answer = asyncio.ensure_future(self.engine.answer(images, deadline))
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientDisconnect
            found = answer.result()
        except BenfourierError as error:
            raise refusals.unusable(str(error)) from error
        finally:
            answer.cancel()
            gone.cancel()
        self.metrics.judged(found)
        if found.version == self.judge.version:
            self.drift.add(found.score)
        return found

    async def _load(self) -> None:
        stamp = self._origin.stamp()
        judge, old = await self.engine.between(self._origin.load), self.engine.judge
        if old is not None and _look(judge.guard) != _look(old.guard):
            raise StoreError("the new guard takes other images than the old one; start the service again for it")
        self._stamp, self.engine.judge = stamp, judge
        self._drift = Drift(judge.guard.calibration.scores, self.settings.window)
        self.metrics.guard(judge.guard, judge.version)
        detector, threshold = judge.guard.detector.method.name, str(judge.guard.threshold)
        tell("guard loaded", version=judge.version, detector=detector, threshold=threshold)

    async def _watch(self, seconds: float) -> None:
        """Looks at the file again and again, and loads it when it has changed and kept still since."""
        seen = self._stamp
        while True:
            await asyncio.sleep(seconds)
            last, seen = seen, self._origin.stamp()
            if seen is not None and seen == last and seen != self._stamp:
                self._stamp = seen  # a file that is bad is tried once
                await self.reload()


def _look(guard: Guard) -> tuple[object, ...]:
    """What images look like for a guard."""
    subject = guard.subject
    return subject.bounds, subject.height_width, subject.known_channels, subject.mean, subject.std


async def _gone(request: Request) -> None:
    """Returns once the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
