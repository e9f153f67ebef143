"""The batcher by itself, with a function that waits until it may go on."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.errors import ActivationError
from benfourier.service.batcher import Batcher, BatcherClosedError, QueueFullError
from benfourier.service.settings import Settings

Values = Batcher[NDArray[np.int64]]
FAR = 1e9  # a deadline that never comes


class GatedModel:
    """Returns the first pixel of each image; 13 is a fault. Waits for the gate before every batch."""

    def __init__(self, *, gate: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.gate, self.begun = threading.Event(), threading.Semaphore(0)
        if not gate:
            self.gate.set()

    def run(self, images: Sequence[Tensor]) -> NDArray[np.int64]:
        self.begun.release()
        assert self.gate.wait(30)
        values = np.array([int(image[0, 0, 0]) for image in images])
        self.batches.append(values.tolist())
        if 13 in values:
            raise ActivationError("13 is unlucky")
        return values


def images(*values: int) -> list[Tensor]:
    return [torch.full((1, 2, 2), float(value)) for value in values]


async def begun(model: GatedModel) -> None:
    """Returns once the model has begun a batch."""
    await asyncio.to_thread(model.begun.acquire)


def limits(wait: float = 0.0, queue_bytes: int = 10**6) -> Settings:
    """Batches of four images, a queue of eight."""
    settings = Settings(max_batch=4, max_queue=8, max_images=8, batch_wait_seconds=wait)
    return replace(settings, max_body_bytes=1, max_memory_bytes=queue_bytes)


def started(model: GatedModel, *, wait: float = 0.0, queue_bytes: int = 10**6) -> tuple[Values, "asyncio.Task[None]"]:
    batcher = Values(model.run, limits(wait, queue_bytes), lambda images, waits: None)
    return batcher, asyncio.create_task(batcher.run_forever())


async def stopped(batcher: Values, run: "asyncio.Task[None]") -> None:
    batcher.close()
    await run


def test_requests_that_wait_together_are_judged_together_and_each_gets_its_own_result() -> None:
    async def scenario() -> None:
        model = GatedModel(gate=True)
        batcher, run = started(model)
        first = asyncio.create_task(batcher.submit(images(1), FAR))
        await begun(model)
        others = [asyncio.create_task(batcher.submit(images(n, n + 1), FAR)) for n in (2, 4, 6)]
        await asyncio.sleep(0)
        assert batcher.waiting == 6
        model.gate.set()
        assert (await first).tolist() == [1]
        assert [values.tolist() for values in await asyncio.gather(*others)] == [[2, 3], [4, 5], [6, 7]]
        assert model.batches == [[1], [2, 3, 4, 5], [6, 7]]
        await stopped(batcher, run)

    asyncio.run(scenario())


def test_a_batch_waits_for_others_but_not_longer_than_it_may() -> None:
    async def scenario() -> None:
        model = GatedModel()
        batcher, run = started(model, wait=0.3)
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.gather(batcher.submit(images(1), FAR), batcher.submit(images(2), FAR))
        assert model.batches == [[1, 2]]
        assert loop.time() - start >= 0.29
        start = loop.time()
        await asyncio.gather(batcher.submit(images(1, 2), FAR), batcher.submit(images(3, 4), FAR))
        assert loop.time() - start < 0.29  # a full batch does not wait
        await stopped(batcher, run)

    asyncio.run(scenario())


def test_a_full_queue_refuses_and_says_when_to_retry() -> None:
    async def scenario() -> None:
        model = GatedModel(gate=True)
        batcher, run = started(model)
        tasks = [asyncio.create_task(batcher.submit(images(1), FAR))]
        await begun(model)
        tasks += [asyncio.create_task(batcher.submit(images(1, 2, 3, 4), FAR)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="8 images wait, 8 may") as refused:
            await batcher.submit(images(1), FAR)
        assert refused.value.retry_seconds >= 0
        model.gate.set()
        await asyncio.gather(*tasks)
        assert (await batcher.submit(images(1), FAR)).tolist() == [1]
        await stopped(batcher, run)

    asyncio.run(scenario())


def test_large_images_that_wait_are_bounded_by_their_bytes() -> None:
    async def scenario() -> None:
        model = GatedModel(gate=True)
        batcher, run = started(model, queue_bytes=48)  # three images of 16 bytes
        tasks = [asyncio.create_task(batcher.submit(images(1), FAR))]
        await begun(model)
        tasks.append(asyncio.create_task(batcher.submit(images(1, 2), FAR)))
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="too many large images wait"):
            await batcher.submit(images(1, 2), FAR)
        model.gate.set()
        await asyncio.gather(*tasks)
        assert len(await batcher.submit(images(1, 2), FAR)) == 2
        await stopped(batcher, run)

    asyncio.run(scenario())


def test_work_of_clients_that_left_or_waited_too_long_is_never_begun() -> None:
    async def scenario() -> None:
        model = GatedModel(gate=True)
        batcher, run = started(model)
        first = asyncio.create_task(batcher.submit(images(1), FAR))
        await begun(model)
        leaving = asyncio.create_task(batcher.submit(images(2), FAR))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(TimeoutError):
            await batcher.submit(images(3), asyncio.get_running_loop().time() + 0.01)
        assert batcher.waiting == 0
        model.gate.set()
        await first
        await stopped(batcher, run)
        assert model.batches == [[1]]

    asyncio.run(scenario())


def test_thousands_of_clients_that_leave_while_a_batch_gathers_harm_nobody() -> None:
    async def scenario() -> None:
        model = GatedModel()
        batcher, run = started(model, wait=0.0002)
        for _ in range(1500):  # more than Python lets a function call itself
            leaving = asyncio.create_task(batcher.submit(images(1), FAR))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.sleep(0.0004)
        assert (await batcher.submit(images(2), FAR)).tolist() == [2]
        await stopped(batcher, run)

    asyncio.run(scenario())


def test_one_bad_image_does_not_spoil_the_batch_of_others() -> None:
    async def scenario() -> None:
        model = GatedModel(gate=True)
        batcher, run = started(model)
        first = asyncio.create_task(batcher.submit(images(1), FAR))
        await begun(model)
        tasks = [asyncio.create_task(batcher.submit(images(n), FAR)) for n in (2, 13, 3)]
        await asyncio.sleep(0)
        model.gate.set()
        await first
        good, bad, also = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(good, np.ndarray)
        assert isinstance(also, np.ndarray)
        assert isinstance(bad, ActivationError)
        await stopped(batcher, run)

    asyncio.run(scenario())


def test_closing_finishes_accepted_requests_and_accepts_no_more() -> None:
    async def scenario() -> None:
        model = GatedModel(gate=True)
        batcher, run = started(model)
        tasks = [asyncio.create_task(batcher.submit(images(n), FAR)) for n in (1, 2, 3)]
        await begun(model)
        batcher.close()
        with pytest.raises(BatcherClosedError):
            await batcher.submit(images(4), FAR)
        model.gate.set()
        assert [values.tolist() for values in await asyncio.gather(*tasks)] == [[1], [2], [3]]
        await stopped(batcher, run)

    asyncio.run(scenario())


def test_work_that_needs_the_network_alone_runs_between_two_batches() -> None:
    async def scenario() -> None:
        model = GatedModel(gate=True)
        batcher, run = started(model)
        first = asyncio.create_task(batcher.submit(images(1), FAR))
        await begun(model)
        alone = asyncio.create_task(batcher.exclusive(lambda: list(model.batches)))
        await asyncio.sleep(0)
        assert not alone.done()
        model.gate.set()
        await first
        assert await alone == [[1]]
        await stopped(batcher, run)

    asyncio.run(scenario())


def test_results_are_there_before_a_batch_is_counted_and_a_failing_counter_ends_nothing() -> None:
    async def scenario() -> None:
        def count(images: int, waits: list[float]) -> None:
            raise RuntimeError("the counters are full")

        batcher = Values(GatedModel().run, limits(), count)
        run = asyncio.create_task(batcher.run_forever())
        for value in (1, 2):
            assert (await batcher.submit(images(value), FAR)).tolist() == [value]
        await stopped(batcher, run)

    asyncio.run(scenario())
