"""Metrics, drift, logs, and a new guard in the old one's place."""

import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import StringIO
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from benfourier.service import judge
from benfourier.service.drift import LEAST, Drift
from benfourier.service.logs import JsonLines, tell
from benfourier.service.settings import Settings
from tests.service.serving import INFER, Served, asked, attacked, clean, guard, outputs, png, served
from tests.service.test_check import other


def counters(here: Served) -> dict[str, float]:
    lines = here.client.get("/metrics").text.splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def test_metrics_count_requests_verdicts_scores_and_batches(tmp_path: Path) -> None:
    images = torch.cat([clean(4), attacked(4)])
    said = guard().check(images)
    with served(tmp_path) as found:
        found.client.post(INFER, json=asked(images))
        found.client.post(INFER, json={})
        found.client.get("/nothing")
        for method in ("BREW", "WHEN"):
            assert found.client.request(method, INFER).status_code == 405
        told = counters(found)
    route = 'method="POST",route="/v2/models/{model_name}/infer"'
    assert told[f'benfourier_requests_total{{{route},status="200"}}'] == 1
    assert told[f'benfourier_requests_total{{{route},status="400"}}'] == 1
    assert told['benfourier_requests_total{method="other",route="other",status="404"}'] == 1
    assert told['benfourier_images_total{verdict="accepted"}'] == said.accepted.sum()
    assert told['benfourier_images_total{verdict="rejected"}'] == (~said.accepted).sum() > 0
    assert told['benfourier_requests_total{method="other",route="/v2/models/{model_name}/infer",status="405"}'] == 2
    assert told["benfourier_score_count"] == told["benfourier_batch_images_sum"] == 8
    assert told[f'benfourier_score_bucket{{le="{said.threshold}"}}'] == said.accepted.sum()
    assert told["benfourier_queue_images"] == 0
    assert told["benfourier_threshold"] == said.threshold
    assert told["benfourier_drift_scores"] == 8
    assert np.isnan(told["benfourier_drift_p"])
    assert told['benfourier_request_seconds_count{route="/v2/models/{model_name}/infer"}'] == 4


def test_drift_is_steady_for_the_stream_of_the_calibration_and_changed_for_another() -> None:
    draw = np.random.default_rng(0)
    calibration = draw.normal(size=400)
    drift = Drift(calibration, window=300)
    drift.add(draw.normal(size=LEAST - 1))
    assert drift.tell().state == "waiting"
    drift.add(draw.normal(size=1000))
    assert drift.tell().state == "steady"  # fails with a probability of 0.001, at this seed it does not
    assert drift.tell().scores == 300
    drift.add(draw.normal(1.0, size=300))
    assert drift.tell().state == "changed"
    assert drift.tell().distance > 0.3


def test_the_page_can_see_a_stream_that_has_changed(tmp_path: Path) -> None:
    with served(tmp_path) as found:
        assert found.client.get("/v1/guard").json()["drift"]["state"] == "waiting"
        for _ in range(4):
            found.client.post(INFER, json=asked(attacked(16)))
        told = found.client.get("/v1/guard").json()["drift"]
        assert told["state"] == "changed"
        assert told["scores"] == 64
        assert counters(found)["benfourier_drift_p"] == pytest.approx(told["p"])


def test_a_new_guard_takes_over_without_a_request_being_dropped(tmp_path: Path) -> None:
    image = asked(clean(1))
    with served(tmp_path, Settings(watch=0.02, wait=0.0)) as found:
        old = found.client.get("/v1/guard").json()
        guard(0.3).save(found.file)
        seen: list[str] = []
        thresholds: dict[str, float] = {}
        while len(set(seen)) < 2:
            answer = found.client.post(INFER, json=image)
            assert answer.status_code == 200
            seen.append(answer.json()["model_version"])
            thresholds[seen[-1]] = outputs(answer)["threshold"][0]
        new = found.client.get("/v1/guard").json()
        assert seen[0] == old["version"] != new["version"] == seen[-1]
        assert thresholds[old["version"]] == old["threshold"] != new["threshold"] == guard(0.3).threshold.value
        assert new["drift"]["scores"] <= 1
        assert counters(found)['benfourier_reloads_total{outcome="done"}'] == 1


def test_evidence_is_that_of_the_guard_that_judged(tmp_path: Path) -> None:
    picture = [("images", ("0.png", png(clean(1)[0]), "image/png"))]
    with served(tmp_path, Settings(watch=0.02, wait=1.5)) as found, ThreadPoolExecutor() as beside:
        waiting = beside.submit(found.client.post, "/v1/check", files=picture)
        other("lid", k=5).save(found.file)
        answer = waiting.result()
        while answer.json()["version"] != found.client.get("/v1/guard").json()["version"]:
            answer = found.client.post("/v1/check", files=picture)
        again = found.client.post("/v1/check", files=picture)
    assert answer.status_code == again.status_code == 200
    assert again.json()["results"][0]["evidence"][0]["layer"] == "input-image"
    assert answer.json() == again.json()


def test_a_broken_guard_file_changes_nothing(tmp_path: Path) -> None:
    with served(tmp_path, Settings(watch=0.02)) as found:
        old = found.client.get("/v1/guard").json()["version"]
        found.file.write_bytes(b"not a guard")
        while counters(found).get('benfourier_reloads_total{outcome="failed"}') != 1:
            assert found.client.post(INFER, json=asked(clean(1))).status_code == 200
        assert found.client.get("/v1/guard").json()["version"] == old


def test_whatever_goes_wrong_with_a_new_guard_the_old_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    with served(tmp_path, Settings(watch=0.02)) as found:
        monkeypatch.setattr(judge, "load_guard", fail)
        guard(0.3).save(found.file)
        while counters(found).get('benfourier_reloads_total{outcome="failed"}') != 1:
            assert found.client.post(INFER, json=asked(clean(1))).status_code == 200


def test_a_service_that_cannot_judge_any_more_is_not_ready_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the counters are full")

    with served(tmp_path) as found:
        assert found.client.get("/v2/health/ready").status_code == 200
        monkeypatch.setattr(found.service.metrics, "batch", fail)
        with suppress(httpx.TimeoutException):
            found.client.post(INFER, json=asked(clean(1)), timeout=0.3)
        while found.client.get("/v2/health/ready").status_code == 200:
            pass
        assert found.client.post(INFER, json=asked(clean(1))).status_code == 503
        assert found.client.get("/v2/health/live").status_code == 200
    assert "judging failed" in caplog.text


def test_logs_are_one_json_object_per_line_with_the_facts_beside_the_event() -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("benfourier.service")
    logger.addHandler(handler)
    try:
        logger.setLevel("INFO")
        tell("request", path='/a\n"b"', status=200)
        try:
            raise RuntimeError("inside")
        except RuntimeError:
            tell("request failed", level=logging.ERROR, trace=True)
    finally:
        logger.removeHandler(handler)
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["path"], first["status"], first["level"]) == ("request", '/a\n"b"', 200, "info")
    assert re.match(r"\d{4}-\d\d-\d\dT", first["time"])
    assert "RuntimeError: inside" in second["trace"]
