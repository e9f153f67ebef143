"""A service for a network that takes images of any size."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import httpx
import numpy as np
import torch
from torch import nn

import benfourier as bf
from benfourier.service.app import make_app
from benfourier.service.engine import Engine, GuardFile, fill_batches
from tests.detectors.toys import toys
from tests.service.serving import INFER, SETTINGS, asked, outputs, png, running


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
    settings = replace(SETTINGS, max_body_bytes=2**18, max_memory_bytes=2**18)
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
