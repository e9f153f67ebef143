"""`/v1/check` and `/v1/guard`."""

import base64
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

import benfourier as bf
from benfourier.service.check import histogram
from benfourier.service.evidence import evidence, layers_of
from tests.detectors.toys import toys
from tests.service.serving import Served, attacked, clean, guard, png

IMAGES = torch.cat([clean(2), attacked(2)])


def files(images: torch.Tensor) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("images", (f"{place}.png", png(image), "image/png")) for place, image in enumerate(images)]


def told(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def test_image_files_get_the_guards_verdict_label_score_and_threshold(here: Served) -> None:
    results, said = told(here.client.post("/v1/check", files=files(IMAGES))), guard().check(IMAGES)
    assert [result["verdict"] == "accepted" for result in results] == said.accepted.tolist()
    assert {result["verdict"] for result in results} == {"accepted", "rejected"}
    assert [result["label"] for result in results] == said.label.tolist()
    assert [result["class_name"] for result in results] == said.names
    assert np.allclose([result["score"] for result in results], said.score, atol=1e-6)
    assert {result["threshold"] for result in results} == {said.threshold}
    assert [result["name"] for result in results] == ["0.png", "1.png", "2.png", "3.png"]


def test_base64_in_json_says_the_same_as_files(here: Served) -> None:
    pictures = [{"name": f"{n}.png", "data": base64.b64encode(png(image)).decode()} for n, image in enumerate(IMAGES)]
    in_json = told(here.client.post("/v1/check", json={"images": pictures}))
    in_files = told(here.client.post("/v1/check", files=files(IMAGES)))
    assert [r["verdict"] for r in in_json] == [r["verdict"] for r in in_files]
    assert np.allclose([r["score"] for r in in_json], [r["score"] for r in in_files], atol=1e-6)


def test_the_evidence_is_each_layers_spectrum_beside_that_of_clean_images(here: Served) -> None:
    (result,) = told(here.client.post("/v1/check", files=files(IMAGES[:1])))
    keeper = guard()
    spectra = bf.features(keeper.subject, IMAGES[:1], show_progress=False).reshape(-1, 16)
    layers = result["evidence"]
    assert [layer["layer"] for layer in layers] == keeper.subject.layers()
    for layer, spectrum, mean, deviation in zip(
        layers,
        spectra,
        keeper.calibration.mean.reshape(-1, 16),
        keeper.calibration.deviation.reshape(-1, 16),
        strict=True,
    ):
        assert np.allclose(layer["values"], spectrum, rtol=1e-3, atol=1e-5)
        assert np.allclose(layer["mean"], mean, rtol=1e-4)
        assert np.allclose(layer["deviation"], deviation, rtol=1e-4)
        away = (np.array(layer["values"]) - layer["mean"]) / np.where(deviation > 0, deviation, np.inf)
        assert layer["oddness"] == pytest.approx(np.sqrt(np.square(away).mean()), rel=1e-2)


def test_a_broken_image_is_named_and_the_request_refused(here: Served) -> None:
    answer = here.client.post(
        "/v1/check", files=[*files(IMAGES[:1]), ("images", ("bad.png", b"no image", "image/png"))]
    )
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("bad.png: it is not an image")


def test_a_picture_of_another_size_is_refused_with_the_size_that_is_wanted(here: Served) -> None:
    answer = here.client.post("/v1/check", files=files(torch.zeros(1, 1, 9, 9)))
    assert answer.status_code == 422
    assert "8×8 is wanted" in answer.json()["error"]


def test_paths_in_requests_are_only_names(here: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(IMAGES[0]))
    answer = here.client.post("/v1/check", files=[("images", (str(secret), b"", "image/png"))])
    assert answer.status_code == 422
    for path in (f"/page/{secret}", "/page/../settings.py", "/page/..%2fsettings.py"):
        assert here.client.get(path).status_code == 404


def test_the_guards_facts_hold_the_clean_scores(here: Served) -> None:
    facts, keeper = here.client.get("/v1/guard").json(), guard()
    assert facts["detector"] == "mbf"
    assert facts["evidence"] == "spectrum"
    assert facts["threshold"] == keeper.threshold.value
    assert sum(facts["clean_scores"]["counts"]) == facts["clean_images"] == 40
    assert (facts["channels"], facts["height"], facts["width"]) == (1, 8, 8)
    assert not facts["demo"]


@pytest.mark.parametrize("scores", [[5.0] * 40, [1e12, 1e12 + 1e-4], [0.0, 5e-324], [-1.0, 0.0, 2.0]])
def test_scores_that_hardly_differ_have_a_histogram_too(scores: list[float]) -> None:
    counts, edges = histogram(np.array(scores))
    assert counts.sum() == len(scores)
    assert (np.diff(edges) > 0).all()


@cache
def other(name: str, **options: Any) -> bf.Guard:
    made = toys()
    fitted = bf.fit(name, made.subject, made.fitted.for_attack("bim"), show_progress=False, C=1.0, gamma=1.0, **options)
    return bf.Guard(made.subject, fitted, false_alarm_rate=0.1, clean=made.tested.clean)


@pytest.mark.parametrize(
    ("name", "options", "layers"),
    [("lid", {"k": 5}, 11), ("mahalanobis", {"magnitude": 0.001}, 6), ("max-softmax", {}, 1), ("kd-bu", {}, 1)],
)
def test_other_detectors_show_their_own_numbers_layer_by_layer(name: str, options: Any, layers: int) -> None:
    keeper = other(name, **options)
    mean = keeper.calibration.mean
    found = evidence(keeper, mean)
    assert len(found) == layers
    assert [part.layer for part in found] == list(layers_of(keeper.detector, len(mean)))
    assert np.concatenate([part.values for part in found]).tolist() == mean.tolist()
    assert [part.oddness for part in found] == [0.0] * layers
