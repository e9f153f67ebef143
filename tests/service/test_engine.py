"""The engine by itself, with a judge that waits until it is told to go on."""

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from starlette.exceptions import HTTPException
from torch import Tensor

from benfourier.errors import ResponseError
from benfourier.service.engine import Engine
from benfourier.service.judge import Judged
from benfourier.service.metrics import Metrics
from benfourier.service.settings import Settings
from tests.service.serving import guard

FAR = 1e9  # a deadline that never comes


class Patient:
    """Says an image's first pixel; 13 is a fault. Waits for the gate before every batch."""

    version = "1"

    def __init__(self, *, gate: bool = False) -> None:
        self.guard = guard()
        self.batches: list[list[int]] = []
        self.gate, self.begun = threading.Event(), threading.Semaphore(0)
        if not gate:
            self.gate.set()

    def judge(self, images: Sequence[Tensor]) -> Judged:
        self.begun.release()
        assert self.gate.wait(30)
        values = np.array([int(image[0, 0, 0]) for image in images])
        self.batches.append(values.tolist())
        if 13 in values:
            raise ResponseError("13 is unlucky")
        return Judged(values, values > 0, values / 2, np.zeros((len(values), 1)), 0.0, self.version, self.guard)


def images(*values: int) -> list[Tensor]:
    return [torch.full((1, 2, 2), float(value)) for value in values]


async def begun(judge: Patient) -> None:
    """Returns once the judge has a batch in hand."""
    await asyncio.to_thread(judge.begun.acquire)


def started(judge: Patient, **options: float) -> tuple[Engine, "asyncio.Task[None]"]:
    engine = Engine(Settings(**{"images": 4, "queue": 8, "batch": 4, "wait": 0.0, **options}), Metrics())  # type: ignore[arg-type]
    engine.judge = judge
    return engine, asyncio.create_task(engine.run())


async def stopped(engine: Engine, run: "asyncio.Task[None]") -> None:
    engine.close()
    await run
    engine.free()


def test_requests_that_wait_together_are_judged_together_and_each_gets_its_own() -> None:
    async def play() -> None:
        judge = Patient(gate=True)
        engine, run = started(judge)
        first = asyncio.create_task(engine.answer(images(1), FAR))
        await begun(judge)
        others = [asyncio.create_task(engine.answer(images(n, n + 1), FAR)) for n in (2, 4, 6)]
        await asyncio.sleep(0)
        assert engine.waiting == 6
        judge.gate.set()
        assert (await first).label.tolist() == [1]
        assert [found.label.tolist() for found in await asyncio.gather(*others)] == [[2, 3], [4, 5], [6, 7]]
        assert judge.batches == [[1], [2, 3, 4, 5], [6, 7]]
        await stopped(engine, run)

    asyncio.run(play())


def test_a_batch_waits_for_others_but_not_longer_than_it_may() -> None:
    async def play() -> None:
        judge = Patient()
        engine, run = started(judge, wait=0.3)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.gather(engine.answer(images(1), FAR), engine.answer(images(2), FAR))
        assert judge.batches == [[1, 2]]
        assert loop.time() - start >= 0.29
        start = loop.time()
        await asyncio.gather(engine.answer(images(1, 2), FAR), engine.answer(images(3, 4), FAR))
        assert loop.time() - start < 0.29  # a full batch does not wait
        await stopped(engine, run)

    asyncio.run(play())


def test_a_full_queue_refuses_and_says_when_to_come_again() -> None:
    async def play() -> None:
        judge = Patient(gate=True)
        engine, run = started(judge)
        tasks = [asyncio.create_task(engine.answer(images(1), FAR))]
        await begun(judge)
        tasks += [asyncio.create_task(engine.answer(images(1, 2, 3, 4), FAR)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(HTTPException) as refused:
            await engine.answer(images(1), FAR)
        assert refused.value.status_code == 429
        assert refused.value.headers == {"Retry-After": "1"}
        judge.gate.set()
        await asyncio.gather(*tasks)
        assert (await engine.answer(images(1), FAR)).label.tolist() == [1]
        await stopped(engine, run)

    asyncio.run(play())


def test_large_images_that_wait_are_bounded_by_their_bytes() -> None:
    async def play() -> None:
        judge = Patient(gate=True)
        engine, run = started(judge, body=1, held=48)  # three images of 16 bytes
        tasks = [asyncio.create_task(engine.answer(images(1), FAR))]
        await begun(judge)
        tasks.append(asyncio.create_task(engine.answer(images(1, 2), FAR)))
        await asyncio.sleep(0)
        for given, status in ((images(1, 2), 429), (images(1, 2, 3, 4), 413)):
            with pytest.raises(HTTPException) as refused:
                await engine.answer(given, FAR)
            assert refused.value.status_code == status
        judge.gate.set()
        await asyncio.gather(*tasks)
        assert len(await engine.answer(images(1, 2), FAR)) == 2
        await stopped(engine, run)

    asyncio.run(play())


def test_work_of_clients_that_left_or_waited_too_long_is_never_begun() -> None:
    async def play() -> None:
        judge = Patient(gate=True)
        engine, run = started(judge)
        first = asyncio.create_task(engine.answer(images(1), FAR))
        await begun(judge)
        leaving = asyncio.create_task(engine.answer(images(2), FAR))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(HTTPException) as late:
            await engine.answer(images(3), asyncio.get_running_loop().time() + 0.01)
        assert late.value.status_code == 504
        assert engine.waiting == 0
        judge.gate.set()
        await first
        await stopped(engine, run)
        assert judge.batches == [[1]]

    asyncio.run(play())


def test_thousands_of_clients_that_leave_while_a_batch_gathers_harm_nobody() -> None:
    async def play() -> None:
        judge = Patient()
        engine, run = started(judge, wait=0.0002)
        for _ in range(1500):  # more than Python lets a function call itself
            leaving = asyncio.create_task(engine.answer(images(1), FAR))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.sleep(0.0004)
        assert (await engine.answer(images(2), FAR)).label.tolist() == [2]
        await stopped(engine, run)

    asyncio.run(play())


def test_one_bad_image_does_not_spoil_the_batch_of_others() -> None:
    async def play() -> None:
        judge = Patient(gate=True)
        engine, run = started(judge)
        first = asyncio.create_task(engine.answer(images(1), FAR))
        await begun(judge)
        tasks = [asyncio.create_task(engine.answer(images(n), FAR)) for n in (2, 13, 3)]
        await asyncio.sleep(0)
        judge.gate.set()
        await first
        good, bad, also = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(good, Judged)
        assert isinstance(also, Judged)
        assert isinstance(bad, ResponseError)
        await stopped(engine, run)

    asyncio.run(play())


def test_closing_finishes_what_was_taken_and_takes_nothing_more() -> None:
    async def play() -> None:
        judge = Patient(gate=True)
        engine, run = started(judge)
        tasks = [asyncio.create_task(engine.answer(images(n), FAR)) for n in (1, 2, 3)]
        await begun(judge)
        engine.close()
        with pytest.raises(HTTPException) as refused:
            await engine.answer(images(4), FAR)
        assert refused.value.status_code == 503
        judge.gate.set()
        assert [found.label.tolist() for found in await asyncio.gather(*tasks)] == [[1], [2], [3]]
        await stopped(engine, run)

    asyncio.run(play())
