"""A service for a network that takes images of any size, and files of large images."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path

import httpx
import numpy as np
import torch
from PIL import Image
from torch import nn

import benfourier as bf
from benfourier.service.app import make_app
from benfourier.service.engine import Engine, GuardFile, fill_batches
from benfourier.service.settings import Settings
from tests.detectors.toys import toys
from tests.service.serving import INFER, SETTINGS, asked, clean, guard, outputs, png, running

File = tuple[str, tuple[str, bytes, str]]


@cache
def unsized() -> bf.Guard:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 10)
        ).eval()
    classifier = bf.Classifier(module, channels=1)
    detector = bf.fit("mbf", classifier, toys().fitted.for_attack("bim"), show_progress=False, C=1.0, gamma=1.0)
    return bf.Guard.calibrated(detector, toys().tested.clean, known=toys().fitted.clean)


def images(*sides: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.rand(1, side, side, generator=draw) for side in sides]


def test_a_size_that_the_network_cannot_take_is_refused_and_others_are_served(tmp_path: Path) -> None:
    unsized().save(tmp_path / "guard.bf")
    app = make_app(Engine(GuardFile(tmp_path / "guard.bf", unsized().classifier.module), SETTINGS))
    with running(app, SETTINGS) as address, httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/v2/models/guard").json()["inputs"][0]["shape"] == [-1, 1, -1, -1]
        answer = client.post(INFER, json=asked(torch.zeros(1, 1, 2, 2)))
        assert answer.status_code == 422
        assert "cannot be run on images of shape" in answer.json()["error"]
        assert len(outputs(client.post(INFER, json=asked(torch.stack(images(12, 12)))))["label"]) == 2


def test_small_files_of_large_images_that_the_memory_could_not_hold_are_refused(tmp_path: Path) -> None:
    unsized().save(tmp_path / "guard.bf")
    settings = replace(SETTINGS, max_body_bytes=2**18, max_memory_bytes=2**18, max_pixels=2**20)
    app = make_app(Engine(GuardFile(tmp_path / "guard.bf", unsized().classifier.module), settings))
    files = [("images", ("plain.png", png(torch.zeros(1, 200, 200)), "image/png"))]
    with running(app, settings) as address, httpx.Client(base_url=address, timeout=60) as client:
        answer = client.post("/v1/check", files=files * 4)
        assert answer.status_code == 413
        assert str(settings.max_memory_bytes) in answer.json()["error"]
        assert client.post("/v1/check", files=files).status_code == 200


def test_batches_are_filled_up_for_each_size_of_images() -> None:
    several = [*images(12, 20, 12, 12), *images(20)]
    filled = fill_batches(several, 4)
    assert [image.shape[1] for image in filled] == [12, 20, 12, 12, 20, 12, 20, 20]
    assert all(one is other for one, other in zip(filled, several, strict=False))
    assert np.allclose(unsized().judge(filled, batch=4)[:5].score, unsized().judge(several).score, atol=0.05)


@contextmanager
def stretching(folder: Path, settings: Settings) -> Iterator[httpx.Client]:
    """A client of a service that scales images of all sizes to 8×8."""
    guard(resize="stretch").save(folder / "guard.bf")
    app = make_app(Engine(GuardFile(folder / "guard.bf", toys().classifier.module), settings))
    with running(app, settings) as address, httpx.Client(base_url=address, timeout=60) as client:
        yield client


def plain_file(side: int) -> File:
    """A small file of a large image of one colour, in RGBA."""
    content = BytesIO()
    Image.new("RGBA", (side, side), (9, 9, 9, 255)).save(content, "PNG")
    return "images", (f"{side}.png", content.getvalue(), "image/png")


def test_files_whose_images_have_too_many_pixels_together_are_refused_before_any_is_decoded(tmp_path: Path) -> None:
    with stretching(tmp_path, replace(SETTINGS, max_pixels=4 * 64 * 64)) as client:
        assert client.post("/v1/check", files=[plain_file(64)] * 4).status_code == 200
        answer = client.post("/v1/check", files=[plain_file(64)] * 5)
        assert answer.status_code == 413
        assert all(word in answer.json()["error"] for word in ("16384 pixels", "fewer", "--max-pixels"))


def test_a_file_that_takes_more_memory_to_decode_than_two_bodies_is_refused_before(tmp_path: Path) -> None:
    with stretching(tmp_path, replace(SETTINGS, max_body_bytes=2**18)) as client:
        assert client.post("/v1/check", files=[plain_file(200)]).status_code == 200  # of 400 000 bytes
        answer = client.post("/v1/check", files=[plain_file(256)])
        assert answer.status_code == 422
        assert all(word in answer.json()["error"] for word in ("256.png", "655360 bytes", "shrink"))


def test_images_of_a_request_whose_time_is_up_are_decoded_no_further_and_small_requests_never_wait(
    tmp_path: Path,
) -> None:
    # each request has 15 s of decoding or more, and its time is up after 3
    settings = Settings(max_body_bytes=2**25, max_pixels=2**30, timeout_seconds=3)
    with stretching(tmp_path, settings) as client, ThreadPoolExecutor(2) as pool:
        post = [pool.submit(client.post, "/v1/check", files=[plain_file(2048)] * 60) for _ in range(2)]
        while not all(each.done() for each in post):
            assert client.post("/v1/check", files=[("images", ("a.png", png(clean(1)[0]), "image/png"))]).is_success
        assert [each.result().status_code for each in post] == [504] * 2
        assert client.post("/v1/check", files=[plain_file(2048)]).status_code == 200
