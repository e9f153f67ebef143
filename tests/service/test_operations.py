"""Metrics, drift, logs, and replacing the guard."""

import asyncio
import json
import logging
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import StringIO
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from torch import nn

import benfourier as bf
from benfourier.guard.guard import load_guard
from benfourier.service import engine
from benfourier.service.settings import Settings
from benfourier.service.telemetry import JsonFormatter, Metrics, log_event
from tests.detectors.guarded import other_guard
from tests.service.serving import INFER, Served, asked, attacked, clean, guard, outputs, png, served


def counters(here: Served) -> dict[str, float]:
    lines = here.client.get("/metrics").text.splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def test_metrics_count_requests_verdicts_scores_and_batches(tmp_path: Path) -> None:
    images = torch.cat([clean(4), attacked(4)])
    verdicts = guard().check(images)
    with served(tmp_path) as service:
        service.client.post(INFER, json=asked(images))
        service.client.post(INFER, json={})
        service.client.get("/nothing")
        for method in ("BREW", "WHEN"):
            assert service.client.request(method, INFER).status_code == 405
        counts = counters(service)
    route = 'method="POST",route="/v2/models/{model_name}/infer"'
    assert counts[f'benfourier_requests_total{{{route},status="200"}}'] == 1
    assert counts[f'benfourier_requests_total{{{route},status="400"}}'] == 1
    assert counts['benfourier_requests_total{method="other",route="other",status="404"}'] == 1
    assert counts['benfourier_images_total{verdict="accepted"}'] == verdicts.accepted.sum()
    assert counts['benfourier_images_total{verdict="rejected"}'] == (~verdicts.accepted).sum() > 0
    assert counts['benfourier_requests_total{method="other",route="/v2/models/{model_name}/infer",status="405"}'] == 2
    assert counts["benfourier_score_count"] == counts["benfourier_batch_images_sum"] == 8
    assert counts[f'benfourier_score_bucket{{le="{verdicts.threshold}"}}'] == verdicts.accepted.sum()
    assert counts["benfourier_queue_images"] == 0
    assert counts["benfourier_threshold"] == verdicts.threshold
    assert counts["benfourier_drift_scores"] == 8
    assert np.isnan(counts["benfourier_drift_p"])
    assert counts['benfourier_request_seconds_count{route="/v2/models/{model_name}/infer"}'] == 4


def test_the_page_can_see_a_stream_that_has_changed(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        assert service.client.get("/v1/guard").json()["drift"]["state"] == "waiting"
        for _ in range(4):
            service.client.post(INFER, json=asked(attacked(16)))
        drift = service.client.get("/v1/guard").json()["drift"]
        assert drift["state"] == "changed"
        assert drift["scores"] == 64
        assert counters(service)["benfourier_drift_p"] == pytest.approx(drift["p"])


def test_a_new_guard_takes_over_without_a_request_being_dropped(tmp_path: Path) -> None:
    image = asked(clean(1))
    with served(tmp_path, Settings(watch_seconds=0.02, batch_wait_seconds=0.0)) as service:
        old = service.client.get("/v1/guard").json()
        seen: list[str] = []
        thresholds: dict[str, float] = {}
        while len(set(seen)) < 2:
            answer = service.client.post(INFER, json=image)
            assert answer.status_code == 200
            seen.append(answer.json()["model_version"])
            thresholds[seen[-1]] = outputs(answer)["threshold"][0]
            if len(seen) == 1:  # not before: the old guard might never be seen
                guard(0.3).save(service.file)
        new = service.client.get("/v1/guard").json()
        assert seen[0] == old["version"] != new["version"] == seen[-1]
        assert thresholds[old["version"]] == old["threshold"] != new["threshold"] == guard(0.3).threshold.value
        assert new["drift"]["scores"] <= 1
        assert counters(service)['benfourier_reloads_total{outcome="done"}'] == 1


def test_evidence_is_that_of_the_guard_that_judged(tmp_path: Path) -> None:
    picture = [("images", ("0.png", png(clean(1)[0]), "image/png"))]
    with (
        served(tmp_path, Settings(watch_seconds=0.02, batch_wait_seconds=1.5)) as service,
        ThreadPoolExecutor() as beside,
    ):
        waiting = beside.submit(service.client.post, "/v1/check", files=picture)
        other_guard("lid", k=5).save(service.file)
        answer = waiting.result()
        while answer.json()["version"] != service.client.get("/v1/guard").json()["version"]:
            answer = service.client.post("/v1/check", files=picture)
        again = service.client.post("/v1/check", files=picture)
    assert answer.status_code == again.status_code == 200
    assert again.json()["results"][0]["evidence"][0]["layer"] == "input-image"
    assert answer.json() == again.json()


def test_a_broken_guard_file_changes_nothing(tmp_path: Path) -> None:
    with served(tmp_path, Settings(watch_seconds=0.02)) as service:
        old = service.client.get("/v1/guard").json()["version"]
        service.file.write_bytes(b"not a guard")
        while counters(service).get('benfourier_reloads_total{outcome="failed"}') != 1:
            assert service.client.post(INFER, json=asked(clean(1))).status_code == 200
        assert service.client.get("/v1/guard").json()["version"] == old


def test_the_old_guard_stays_whatever_goes_wrong_with_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    with served(tmp_path, Settings(watch_seconds=0.02)) as service:
        monkeypatch.setattr(engine, "load_guard", fail)
        guard(0.3).save(service.file)
        while counters(service).get('benfourier_reloads_total{outcome="failed"}') != 1:
            assert service.client.post(INFER, json=asked(clean(1))).status_code == 200


def test_a_counter_that_fails_does_not_end_judging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the counters are full")

    monkeypatch.setattr(Metrics, "count_batch", fail)
    with served(tmp_path) as service:
        for _ in range(2):
            assert service.client.post(INFER, json=asked(clean(1))).status_code == 200
        assert service.client.get("/v2/health/ready").status_code == 200
    assert "the counters are full" in caplog.text


def test_counters_that_all_fail_end_neither_requests_nor_reloads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the counters are full")

    with served(tmp_path, Settings(watch_seconds=0.02)) as service:
        old = service.client.get("/v1/guard").json()["version"]
        for name in ("count_request", "count_batch", "count_verdicts", "set_guard"):
            monkeypatch.setattr(Metrics, name, fail)
        monkeypatch.setattr(service.engine.metrics.reloads, "labels", fail)
        guard(0.3).save(service.file)
        while service.client.get("/v1/guard").json()["version"] == old:
            assert service.client.post(INFER, json=asked(clean(1))).status_code == 200
        service.file.write_bytes(b"not a guard")
        while "reload failed" not in caplog.text:
            assert service.client.post(INFER, json=asked(clean(1))).status_code == 200
        guard(0.2).save(service.file)
        while service.client.get("/v1/guard").json()["threshold"] != guard(0.2).threshold.value:
            assert service.client.post(INFER, json=asked(clean(1))).status_code == 200
    assert "the counters are full" in caplog.text
    assert "request failed" not in caplog.text


@pytest.mark.parametrize("error", [SystemExit(3), MemoryError()])
@pytest.mark.parametrize("place", ["service.oip.read_call", "guard.guard.Guard.judge"])
def test_a_thread_that_leaves_python_or_has_no_memory_fails_its_own_request_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise error

    with served(tmp_path) as service:
        with monkeypatch.context() as broken:
            broken.setattr(f"benfourier.{place}", fail)
            answer = service.client.post(INFER, json=asked(clean(1)))
            assert (answer.status_code, list(answer.json())) == (500, ["error"])
        assert service.client.post(INFER, json=asked(clean(1))).status_code == 200
        assert service.client.get("/v2/health/ready").status_code == 200


def test_a_clock_that_jumps_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, year = time.time, 365 * 24 * 3600
    with served(tmp_path, Settings(watch_seconds=0.02, timeout_seconds=20)) as service:
        expected = outputs(service.client.post(INFER, json=asked(clean(2))))
        for jump in (year, -year):
            monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
            answer = service.client.post(INFER, json=asked(clean(2)))
            assert answer.status_code == 200
            assert np.array_equal(outputs(answer)["label"], expected["label"])
        guard(0.3).save(service.file)
        os.utime(service.file, (1, 1))  # written long ago, as the clock says now
        while service.client.get("/v1/guard").json()["threshold"] != guard(0.3).threshold.value:
            assert service.client.get("/v2/health/ready").status_code == 200


def test_with_batches_filled_up_a_score_does_not_depend_on_other_images(tmp_path: Path) -> None:
    images = torch.cat([clean(20), attacked(20)])
    with served(tmp_path, Settings(deterministic=True, max_batch=8)) as service:
        together = outputs(service.client.post(INFER, json=asked(images)))["score"]
        turned = outputs(service.client.post(INFER, json=asked(images.flip(0))))["score"][::-1]
        alone = [outputs(service.client.post(INFER, json=asked(image[None])))["score"][0] for image in images]
    assert np.array_equal(together, alone)
    assert np.array_equal(together, turned)
    # without it the last bits differ, so that the test can fail
    assert not np.array_equal(guard().judge(list(images)).score, [guard().judge([i]).score[0] for i in images])


def test_a_service_that_cannot_judge_any_more_is_not_ready_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no thread can be started")

    with served(tmp_path) as service:
        assert service.client.get("/v2/health/ready").status_code == 200
        monkeypatch.setattr(service.engine.batcher, "_run_batch", fail)
        with suppress(httpx.TimeoutException):
            service.client.post(INFER, json=asked(clean(1)), timeout=0.3)
        while service.client.get("/v2/health/ready").status_code == 200:
            pass
        assert service.client.post(INFER, json=asked(clean(1))).status_code == 503
        assert service.client.get("/v2/health/live").status_code == 200
    assert "judging failed" in caplog.text


def test_a_guard_file_rewritten_in_place_during_a_load_leaves_the_old_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = load_guard
    with served(tmp_path) as service:
        old = service.client.get("/v1/guard").json()
        content = service.file.read_bytes()
        guard(0.3).save(service.file)

        def load_while_written(path: Path, module: nn.Module) -> bf.Guard:
            loaded = real(path, module)
            path.write_bytes(content[: len(content) // 2])
            return loaded

        monkeypatch.setattr(engine, "load_guard", load_while_written)
        assert not reload(service)
        assert service.client.get("/v1/guard").json() == old
        assert service.client.post(INFER, json=asked(clean(1))).json()["model_version"] == old["version"]


def reload(service: Served) -> bool:
    """Reloads the guard on the service's own event loop."""
    batches = service.engine._batches
    assert batches is not None
    return asyncio.run_coroutine_threadsafe(service.engine.reload(), batches.get_loop()).result(60)


def test_logs_are_one_json_object_per_line_with_the_facts_beside_the_event() -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("benfourier.service")
    logger.addHandler(handler)
    try:
        logger.setLevel("INFO")
        log_event("request", path='/a\n"b"', status=200)
        try:
            raise RuntimeError("inside")
        except RuntimeError:
            log_event("request failed", level=logging.ERROR, trace=True)
    finally:
        logger.removeHandler(handler)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["path"], first["status"], first["level"]) == ("request", '/a\n"b"', 200, "info")
    assert re.match(r"\d{4}-\d\d-\d\dT", first["time"])
    assert "RuntimeError: inside" in second["trace"]
