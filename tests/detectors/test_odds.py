"""Odds: moves of the logits under noise, against the formula written out."""

import numpy as np
import pytest
import torch
from torch import Tensor

import benfourier as bf
from benfourier.data.images import content_ids
from benfourier.data.seeds import image_generator
from benfourier.detectors.method import FitData
from benfourier.detectors.odds import Odds, OddsScore
from benfourier.errors import OptionError
from tests.detectors.toys import toys

DRAWS, LEVEL = 6, 0.1


def moves(images: Tensor) -> tuple[list[int], list[Tensor]]:
    """Labels, and E[(Z_z − Z_y)(x + η)] − (Z_z − Z_y)(x) by class z, image by image."""
    classifier = toys().classifier
    labels, rows = [], []
    for image, name in zip(images, content_ids(images), strict=True):
        noise = torch.randn((DRAWS, *image.shape), generator=image_generator(0, name))
        noisy = classifier.logits((image + LEVEL * noise).clamp(0, 1)).double()
        own = classifier.logits(image[None]).double()[0]
        label = int(own.argmax())
        labels.append(label)
        rows.append((noisy - noisy[:, [label]]).mean(0) - (own - own[label]))
    return labels, rows


def test_the_score_is_the_greatest_deviation_of_a_move_from_those_of_clean_images_of_that_label() -> None:
    data = toys()
    examples, images = data.fitted.for_attack("bim"), data.tested.adversarial["bim"][:4]
    detector = bf.fit("odds", data.classifier, examples, noise=(f"normal {LEVEL}",), draws=DRAWS, show_progress=False)
    extractor = detector.extractor
    assert isinstance(extractor, OddsScore)
    with torch.no_grad():
        labels, rows = moves(images)
    expected = []
    for label, move in zip(labels, rows, strict=True):
        away = (move - extractor.mean[label, 0]) / extractor.deviation[label, 0]
        expected.append(max(float(value) for other, value in enumerate(away) if other != label))
    np.testing.assert_allclose(detector.score(images), expected, rtol=1e-3, atol=1e-3)


def test_means_are_those_of_clean_images_with_that_label() -> None:
    data = toys()
    examples = data.fitted.for_attack("bim")
    extractor = Odds(noise=(f"normal {LEVEL}",), draws=DRAWS).fit_extractor(data.classifier, FitData(examples))
    with torch.no_grad():
        labels, rows = moves(examples.clean)
    label = max(set(labels), key=labels.count)
    own = torch.stack([row for each, row in zip(labels, rows, strict=True) if each == label])
    assert torch.allclose(extractor.mean[label, 0], own.mean(0), atol=1e-3)
    others = [place for place in range(10) if place != label]
    assert torch.allclose(extractor.deviation[label, 0, others], own.std(0, correction=0)[others], atol=1e-3)


@pytest.mark.parametrize("noise", ["normal", "normal 0", "loud 0.1", "uniform two"])
def test_noise_that_is_none_is_refused(noise: str) -> None:
    with pytest.raises(OptionError, match="noise holds"):
        bf.make_method("odds", noise=(noise,))
