"""Many clients, clients that are killed, and a shutdown under load."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import torch
from torch import Tensor

import benfourier as bf
from benfourier.guard.verdicts import Verdicts
from tests.service.serving import IN_JSON, INFER, SETTINGS, Served, asked, attacked, clean, guard, head, outputs, served

IMAGES = torch.cat([clean(40), attacked(40)])


def test_200_clients_at_once_each_get_the_answer_to_their_own_image(here: Served) -> None:
    verdicts = guard().check(IMAGES)
    places = [place % len(IMAGES) for place in range(200)]

    async def ask() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=here.address, limits=limits, timeout=60) as client:
            return await asyncio.gather(*(client.post(INFER, json=asked(IMAGES[p : p + 1])) for p in places))

    for place, answer in zip(places, asyncio.run(ask()), strict=True):
        assert answer.status_code == 200
        columns = outputs(answer)
        assert columns["label"][0] == verdicts.label[place]
        assert columns["score"][0] == pytest.approx(verdicts.score[place], abs=0.01)  # other batches, other last bits


def test_clients_killed_in_the_middle_of_a_request_harm_nobody(here: Served) -> None:
    body = httpx.Request("POST", here.address, json=asked(IMAGES[:8])).read()
    start = head(len(body))
    for part in (start[:20], start, start + body[:50], start + body) * 5:
        with socket.create_connection(here.place) as victim:
            victim.sendall(part)
    before = here.engine.batcher.accepted
    answers = [here.client.post(INFER, json=asked(IMAGES[:1])) for _ in range(10)]
    assert [answer.status_code for answer in answers] == [200] * 10
    assert here.engine.batcher.accepted >= before + 10
    assert here.engine.batcher.waiting == 0


def test_a_shutdown_under_load_answers_every_request_that_was_accepted(tmp_path: Path) -> None:
    content = httpx.Request("POST", "http://a", json=asked(IMAGES[:8])).read()
    with ThreadPoolExecutor(16) as pool, ExitStack() as stack:
        service = stack.enter_context(served(tmp_path, SETTINGS))
        asking = [pool.submit(_ask_until_it_ends, service.address, content) for _ in range(16)]
        while service.engine.batcher.accepted < 50:
            service.client.get("/v2/health/ready")
        stack.close()  # shuts down while all of them ask
        answered = [job.result() for job in asking]
    assert sum(answered) == service.engine.batcher.accepted >= 50


def test_the_images_of_a_client_that_left_the_queue_are_never_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun, batches = threading.Event(), threading.Event(), list[int]()
    with served(tmp_path) as service, ThreadPoolExecutor(1) as pool:
        real = bf.Guard.judge

        def judge(self: bf.Guard, images: Sequence[Tensor]) -> Verdicts:
            begun.set()
            assert gate.wait(30)
            batches.append(len(images))
            return real(self, images)

        monkeypatch.setattr(bf.Guard, "judge", judge)
        first = pool.submit(service.client.post, INFER, json=asked(IMAGES[:1]))
        assert begun.wait(30)
        with socket.create_connection(service.place) as victim:
            victim.sendall(_raw(IMAGES[:2]))
            while service.engine.batcher.waiting < 2:
                assert not first.done()
        while service.engine.batcher.waiting > 0:
            assert not first.done()
        gate.set()
        assert first.result().status_code == 200
    assert batches == [1]


def _raw(images: Tensor) -> bytes:
    """A whole request as it goes over the wire."""
    body = httpx.Request("POST", "http://a", json=asked(images)).read()
    return head(len(body)) + body


def _ask_until_it_ends(address: str, content: bytes) -> int:
    """How many requests had an answer with verdicts before the server was gone."""
    count = 0
    with httpx.Client(base_url=address, timeout=60) as client:
        while True:
            try:
                answer = client.post(INFER, content=content, headers=IN_JSON)
            except httpx.TransportError:
                return count
            if answer.status_code == 503:
                return count
            assert answer.status_code == 200
            count += 1
