"""Second opinion: the label under another network, which its file holds and its user gives the architecture of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import benfourier as bf
from benfourier.data.examples import Examples
from benfourier.detectors.extractor import margins_of
from benfourier.detectors.second_opinion import OtherNetwork
from benfourier.errors import InputError, StoreError
from benfourier.models.weights import weights_digest
from tests.attacks.trained import network
from tests.detectors.toys import other_classifier, toys


def fitted(examples: Examples | None = None, second: Any = None, **options: Any) -> bf.Detector:
    data, supplied = toys(), {"second": other_classifier() if second is None else second}
    examples = data.fitted.for_attack("bim") if examples is None else examples
    return bf.fit("second-opinion", data.classifier, examples, supplied=supplied, show_progress=False, **options)


def test_the_score_is_minus_the_log_of_the_posterior_that_the_other_network_gives_to_the_label() -> None:
    images = toys().tested.adversarial["bim"][:5]
    labels = toys().classifier.logits(images).argmax(1)
    posterior = other_classifier().logits(images).softmax(1).gather(1, labels.view(-1, 1))[:, 0]
    np.testing.assert_allclose(fitted().score(images), -posterior.log().detach().numpy(), rtol=1e-3, atol=1e-5)


def test_no_attack_is_needed() -> None:
    data = toys()
    alone = bf.make_examples(data.classifier, data.fitted.clean, data.fitted.labels, attacks={}, noise={"noisy": 0.01})
    attacked = fitted(data.fitted.for_attack("bim"))
    np.testing.assert_array_equal(fitted(alone).score(data.tested.clean), attacked.score(data.tested.clean))


def test_margins_of_both_networks_stand_under_a_head() -> None:
    detector, images = fitted(features="margins", C=1.0), toys().tested.clean[:4]
    logits, features, _ = detector.forward(images)
    labels = logits.argmax(1)
    expected = torch.cat([margins_of(each, labels, 1) for each in (logits, other_classifier().logits(images))], 1)
    assert torch.allclose(features, expected.double(), atol=1e-4)
    assert detector.feature_names == ("image", "second network")
    assert type(detector.head).__name__ == "Logistic"


def test_margins_stand_beside_those_of_views() -> None:
    data, supplied = toys(), {"second": other_classifier()}
    options: dict[str, Any] = {
        "views.views": ("median", "shift"),
        "views.agreement": 0.0,
        "views.top": 1,
        "second-opinion.features": "margins",
    }
    method = bf.make_method("views+second-opinion", **options)
    detector = bf.fit(method, data.classifier, data.fitted.for_attack("bim"), supplied=supplied, show_progress=False)
    assert detector.feature_names == ("image", "median", "shift", "image", "second network")


def test_a_guard_holds_the_other_network_and_asks_for_its_architecture(tmp_path: Path) -> None:
    data, path = toys(), tmp_path / "guard.bf"
    guard = bf.Guard.calibrated(fitted(), data.clean.images, show_progress=False)
    guard.save(path)
    module = network()  # other weights, which the file replaces in a copy
    before = weights_digest(module)
    again = bf.load_guard(path, data.classifier.module, second=module)
    images = data.tested.clean
    np.testing.assert_array_equal(again.check(images).score, guard.check(images).score)
    assert weights_digest(module) == before
    extractor = again.detector.extractor
    assert isinstance(extractor, OtherNetwork)
    assert again.detector.summary["learned"]["digest"] == weights_digest(other_classifier().module)
    with pytest.raises(InputError, match="second-opinion needs 'second'"):
        bf.load_guard(path, data.classifier.module)
    with pytest.raises(StoreError, match="give the weights of this very network"):
        bf.load_guard(path, data.classifier.module, second=nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))


def test_images_are_given_to_the_other_network_in_its_own_bounds() -> None:
    class From255(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = other_classifier().module

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.inner(images / 255)
            return logits

    images = toys().tested.clean
    other = bf.Classifier(From255(), bounds=(0.0, 255.0), size=8, channels=1)
    np.testing.assert_allclose(fitted(second=other).score(images), fitted().score(images), atol=1e-3)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (nn.Linear(64, 10), "second is a Linear; it must be a Classifier"),
        (
            bf.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 7))),
            "second has 7 classes and the guarded network 10",
        ),
        (bf.Classifier(nn.Flatten(), size=16, channels=1), r"second does not take images of shape \(1, 8, 8\)"),
    ],
)
def test_a_network_that_does_not_fit_is_refused(second: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(second=second)


def test_the_guarded_network_itself_is_no_second_opinion() -> None:
    with pytest.raises(InputError, match="second is the guarded network itself"):
        fitted(second=toys().classifier)
