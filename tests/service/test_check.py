"""`/v1/check` and `/v1/guard`."""

import base64
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

import benfourier as bf
from benfourier.report.card import card_page, style_digest
from benfourier.service import check
from benfourier.service.check import histogram
from benfourier.service.engine import CheckOutcome
from tests.report.test_card import CARD
from tests.service.serving import Served, attacked, clean, guard, png, served

IMAGES = torch.cat([clean(2), attacked(2)])


def files(images: torch.Tensor) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("images", (f"{place}.png", png(image), "image/png")) for place, image in enumerate(images)]


def results_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def test_image_files_get_the_guards_verdict_label_score_and_threshold(here: Served) -> None:
    results, verdicts = results_of(here.client.post("/v1/check", files=files(IMAGES))), guard().check(IMAGES)
    assert [result["verdict"] == "accepted" for result in results] == verdicts.accepted.tolist()
    assert {result["verdict"] for result in results} == {"accepted", "rejected"}
    assert [result["label"] for result in results] == verdicts.label.tolist()
    assert [result["class_name"] for result in results] == verdicts.names
    assert np.allclose([result["score"] for result in results], verdicts.score, atol=1e-6)
    assert {result["threshold"] for result in results} == {verdicts.threshold}
    assert [result["name"] for result in results] == ["0.png", "1.png", "2.png", "3.png"]


def test_base64_in_json_gives_the_same_results_as_files(here: Served) -> None:
    pictures = [{"name": f"{n}.png", "data": base64.b64encode(png(image)).decode()} for n, image in enumerate(IMAGES)]
    in_json = results_of(here.client.post("/v1/check", json={"images": pictures}))
    in_files = results_of(here.client.post("/v1/check", files=files(IMAGES)))
    assert [r["verdict"] for r in in_json] == [r["verdict"] for r in in_files]
    assert np.allclose([r["score"] for r in in_json], [r["score"] for r in in_files], atol=1e-6)


def test_base64_with_escaped_slashes_is_understood(here: Served) -> None:
    data = base64.b64encode(png(IMAGES[0])).decode()
    assert "/" in data
    body = json.dumps({"images": [{"data": data}]}).replace("/", "\\/")
    answer = here.client.post("/v1/check", content=body, headers={"Content-Type": "application/json"})
    (result,) = results_of(answer)
    assert result["name"] == "image"


def test_the_evidence_is_each_layers_spectrum_beside_that_of_clean_images(here: Served) -> None:
    (result,) = results_of(here.client.post("/v1/check", files=files(IMAGES[:1])))
    local_guard = guard()
    spectra = bf.features(local_guard.classifier, IMAGES[:1], show_progress=False).reshape(-1, 16)
    layers = result["evidence"]
    assert [layer["layer"] for layer in layers] == local_guard.classifier.layer_names()
    for layer, spectrum, mean, deviation in zip(
        layers,
        spectra,
        local_guard.calibration.mean.reshape(-1, 16),
        local_guard.calibration.deviation.reshape(-1, 16),
        strict=True,
    ):
        assert np.allclose(layer["values"], spectrum, rtol=1e-3, atol=1e-5)
        assert np.allclose(layer["mean"], mean, rtol=1e-4)
        assert np.allclose(layer["deviation"], deviation, rtol=1e-4)
        away = (np.array(layer["values"]) - layer["mean"]) / np.where(deviation > 0, deviation, np.inf)
        assert layer["oddness"] == pytest.approx(np.sqrt(np.square(away).mean()), rel=1e-2)
    pushes = [layer.push for layer in local_guard.evidence(local_guard.check(IMAGES[:1]).features[0])]
    assert [layer["push"] for layer in layers] == pytest.approx(pushes, abs=1e-3)


def test_an_unfamiliar_image_is_rejected_with_its_distance(here: Served) -> None:
    checkerboard = (torch.arange(8).unsqueeze(0) + torch.arange(8).unsqueeze(1)) % 2
    results = results_of(
        here.client.post("/v1/check", files=files(torch.stack([checkerboard[None].float(), IMAGES[0]])))
    )
    assert [(result["verdict"], result["reason"]) for result in results] == [
        ("rejected", "unfamiliar"),
        ("accepted", ""),
    ]
    local_guard = guard()
    assert {result["most_unfamiliar"] for result in results} == {local_guard.most_unfamiliar}
    assert [result["unfamiliarity"] > result["most_unfamiliar"] for result in results] == [True, False]


def test_evidence_is_written_off_the_event_loop(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate, threads = threading.Event(), threading.Event(), list[str]()
    real = check._content

    def content(names: Sequence[str], outcome: CheckOutcome) -> bytes:
        threads.append(threading.current_thread().name)
        begun.set()
        assert gate.wait(30)
        return real(names, outcome)

    monkeypatch.setattr(check, "_content", content)
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=here.address) as other:
        waiting = pool.submit(here.client.post, "/v1/check", files=files(IMAGES))
        assert begun.wait(30)
        assert other.get("/v2/health/live").status_code == 200  # others are served meanwhile
        gate.set()
        assert len(results_of(waiting.result())) == 4
    assert all(name.startswith("reader") for name in threads)


def test_the_guards_own_numbers_are_formatted_once(here: Served) -> None:
    here.client.post("/v1/check", files=files(IMAGES))
    assert here.engine.current.clean_evidence is here.engine.current.clean_evidence


def test_a_broken_image_is_named_and_the_request_refused(here: Served) -> None:
    answer = here.client.post(
        "/v1/check", files=[*files(IMAGES[:1]), ("images", ("bad.png", b"no image", "image/png"))]
    )
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("bad.png: it is not an image")


def test_a_picture_of_another_size_is_refused_with_the_expected_size(here: Served) -> None:
    answer = here.client.post("/v1/check", files=files(torch.zeros(1, 1, 9, 9)))
    assert answer.status_code == 422
    assert "9×9, not 8×8" in answer.json()["error"]


def test_paths_in_requests_are_only_names(here: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(IMAGES[0]))
    answer = here.client.post("/v1/check", files=[("images", (str(secret), b"", "image/png"))])
    assert answer.status_code == 422
    for path in (f"/page/{secret}", "/page/../settings.py", "/page/..%2fsettings.py"):
        assert here.client.get(path).status_code == 404


def test_the_guards_facts_hold_the_clean_scores(here: Served) -> None:
    facts, local_guard = here.client.get("/v1/guard").json(), guard()
    assert facts["detector"] == "mbf"
    assert facts["evidence"] == "spectrum"
    assert facts["threshold"] == local_guard.threshold.value
    assert sum(facts["clean_scores"]["counts"]) == facts["clean_images"] == 40
    assert (facts["channels"], facts["height"], facts["width"]) == (1, 8, 8)
    assert not facts["demo"]


@pytest.mark.parametrize("scores", [[5.0] * 40, [1e12, 1e12 + 1e-4], [0.0, 5e-324], [-1.0, 0.0, 2.0]])
def test_scores_that_hardly_differ_have_a_histogram_too(scores: list[float]) -> None:
    counts, edges = histogram(np.array(scores))
    assert counts.sum() == len(scores)
    assert (np.diff(edges) > 0).all()


def test_the_card_of_the_guard_at_work_is_shown_at_its_rate(tmp_path: Path) -> None:
    with served(tmp_path, card=CARD) as service:
        assert service.client.get("/v1/guard").json()["card"]
        answer = service.client.get("/v1/card")
        page = service.client.get("/card")
    assert answer.status_code == 200
    assert str(bf.GuardCard.from_json(answer.json())) == str(CARD)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text == card_page(CARD)
    assert f"style-src 'self' '{style_digest()}'" in page.headers["content-security-policy"]


def test_without_a_card_both_addresses_say_how_to_get_one(here: Served) -> None:
    assert not here.client.get("/v1/guard").json()["card"]
    for path in ("/v1/card", "/card"):
        answer = here.client.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"] == (
            "this guard has no card; `protect`, `fit` and `calibrate` make guards with cards"
        )


def test_a_picture_in_colour_becomes_what_python_makes_of_it_for_a_grey_network(here: Served) -> None:
    shades = (clean(4)[:3, 0].permute(1, 2, 0) * 255).round().byte().numpy()  # three digits as the channels of one
    out = BytesIO()
    Image.fromarray(shades).save(out, "PNG")
    (result,) = results_of(here.client.post("/v1/check", files=[("images", ("a.png", out.getvalue(), "image/png"))]))
    module = guard().classifier.module
    for channels in (1, None):  # None: the network's first convolution says so
        images = bf.load_images(out.getvalue(), bf.Classifier(module, size=8, channels=channels))
        assert images.shape == (1, 1, 8, 8)
        (verdict,) = guard().check(images)
        assert result["score"] == pytest.approx(verdict.score, abs=1e-6)
        assert result["label"] == verdict.label
