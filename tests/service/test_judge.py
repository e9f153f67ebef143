"""A guard as a judge, of a network that takes any size."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
from torch import nn

import benfourier as bf
from benfourier.service import judge as room
from benfourier.service.app import make_app
from benfourier.service.door import running
from benfourier.service.judge import GuardFile, GuardJudge, shape_of
from tests.detectors.toys import toys
from tests.service.serving import INFER, SETTINGS, asked, outputs, png


@cache
def unsized() -> bf.Guard:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(
            nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 10)
        ).eval()
    subject = bf.Subject(module, channels=1)
    detector = bf.fit("mbf", subject, toys().fitted.for_attack("bim"), show_progress=False, C=1.0, gamma=1.0)
    return bf.Guard(subject, detector, clean=toys().tested.clean)


def images(*sides: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.rand(1, side, side, generator=draw) for side in sides]


def test_images_of_several_sizes_are_judged_in_the_order_given() -> None:
    given = images(8, 12, 8, 16, 12)
    found, said = GuardJudge(unsized(), "1").judge(given), unsized().check(given)
    assert np.array_equal(found.label, said.label)
    assert np.allclose(found.score, said.score)
    assert found.numbers.shape == (5, len(unsized().calibration.mean))


def test_plans_of_ever_new_sizes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SHAPES", 3)
    judge = GuardJudge(unsized(), "1")
    first = judge.judge(images(8)).score
    for side in range(8, 20):
        judge.judge(images(side))
    assert len(judge.guard.subject._plans) <= 3
    assert np.allclose(judge.judge(images(8)).score, first)


def test_a_size_that_the_network_cannot_take_is_refused_and_others_are_served(tmp_path: Path) -> None:
    unsized().save(tmp_path / "guard.bf")
    app = make_app(GuardFile(tmp_path / "guard.bf", unsized().subject.module), SETTINGS)
    with running(app, SETTINGS) as address, httpx.Client(base_url=address, timeout=60) as client:
        assert (
            client.get("/v2/models/guard").json()["inputs"][0]["shape"] == [-1, *shape_of(unsized())] == [-1, 1, -1, -1]
        )
        answer = client.post(INFER, json=asked(torch.zeros(1, 1, 2, 2)))
        assert answer.status_code == 422
        assert "cannot be run on images of shape" in answer.json()["error"]
        assert len(outputs(client.post(INFER, json=asked(torch.stack(images(12, 12)))))["label"]) == 2


def test_small_files_of_large_images_that_the_memory_could_not_hold_are_refused(tmp_path: Path) -> None:
    unsized().save(tmp_path / "guard.bf")
    settings = replace(SETTINGS, body=2**18, held=2**18)
    app = make_app(GuardFile(tmp_path / "guard.bf", unsized().subject.module), settings)
    files = [("images", ("plain.png", png(torch.zeros(1, 200, 200)), "image/png"))]
    with running(app, settings) as address, httpx.Client(base_url=address, timeout=60) as client:
        found = client.post("/v1/check", files=files * 4)
        assert found.status_code == 413
        assert str(settings.held) in found.json()["error"]
        assert client.post("/v1/check", files=files).status_code == 200
