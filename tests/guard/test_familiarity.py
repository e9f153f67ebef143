"""The rule `unfamiliar`: what is far from every image that the guard knows."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.errors import InputError
from benfourier.guard.familiarity import LAYERS, fit_familiarity
from tests.detectors.guarded import guard
from tests.detectors.toys import toys

SIDE = 8


def uniform() -> Tensor:
    return torch.rand(100, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def constant() -> Tensor:
    return torch.linspace(0, 1, 20).view(-1, 1, 1, 1).expand(-1, 1, SIDE, SIDE)


def checkerboards() -> Tensor:
    places = torch.arange(SIDE)
    boards = [(places[:, None] // width + places // width) % 2 for width in (1, 2, 4)]
    return torch.stack(boards).unsqueeze(1).float()


UNFAMILIAR = {
    "uniform noise": uniform(),
    "binary noise": uniform().round(),
    "constant images": constant(),
    "checkerboards": checkerboards(),
    "inverted digits": 1 - toys().tested.clean,
}


@pytest.mark.parametrize("kind", UNFAMILIAR)
def test_what_is_far_from_every_digit_is_rejected_as_unfamiliar(kind: str) -> None:
    verdicts = guard().check(UNFAMILIAR[kind])
    assert np.mean(verdicts.reason == "unfamiliar") >= 0.95
    assert not verdicts.accepted[verdicts.reason == "unfamiliar"].any()


def test_digits_are_familiar() -> None:
    assert np.mean(guard().check(toys().tested.clean).reason == "unfamiliar") <= 0.1


def test_a_guard_from_a_file_finds_the_same_images_unfamiliar(tmp_path: Path) -> None:
    guard().save(tmp_path / "guard.bf")
    again = bf.load_guard(tmp_path / "guard.bf", toys().classifier.module)
    first, second = guard().check(UNFAMILIAR["uniform noise"]), again.check(UNFAMILIAR["uniform noise"])
    assert np.array_equal(first.unfamiliarity, second.unfamiliarity)
    assert np.array_equal(first.p_value, second.p_value)
    assert again.most_unfamiliar == guard().most_unfamiliar


def test_layers_with_infinite_logits_do_not_count() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 16), nn.ReLU())
            self.head = nn.Linear(16, 3)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.head(self.body(images))
            return logits.masked_fill(torch.tensor([False, False, True]), -torch.inf)

    classifier = bf.Classifier(Masked().eval(), size=SIDE, channels=1)
    familiarity = fit_familiarity(classifier, list(toys().tested.clean), show_progress=False)
    assert familiarity.layers
    assert not any("masked_fill" in name for name in familiarity.layers)


def test_of_many_layers_some_are_taken_from_the_first_to_the_last() -> None:
    blocks = [part for _ in range(40) for part in (nn.Conv2d(1, 1, 3, padding=1), nn.ReLU())]
    classifier = bf.Classifier(nn.Sequential(*blocks, nn.Flatten(), nn.Linear(64, 3)).eval(), size=SIDE, channels=1)
    familiarity = fit_familiarity(classifier, list(toys().tested.clean), show_progress=False)
    names = classifier.layer_names()
    assert len(familiarity.layers) == LAYERS
    assert familiarity.layers[0] == names[0]
    assert familiarity.layers[-1] == [name for name in names if name != "soft-max"][-1]


def test_too_few_known_images_are_refused() -> None:
    with pytest.raises(InputError, match="there are 3 clean images to tell familiar images by; give at least 10"):
        bf.Guard.calibrated(guard().detector, toys().tested.clean, 0.1, known=toys().fitted.clean[:3])
