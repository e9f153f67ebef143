from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import benfourier as bf
from benfourier.guard.guard import MAX_DEVIATIONS
from tests.detectors.guarded import guard, other_guard
from tests.detectors.toys import toys


@pytest.mark.parametrize(
    ("name", "options", "layers"),
    [("lid", {"k": 5}, 11), ("mahalanobis", {"magnitude": 0.001}, 6), ("max-softmax", {}, 1), ("kd-bu", {}, 2)],
)
def test_other_detectors_show_their_own_features_layer_by_layer(name: str, options: Any, layers: int) -> None:
    guard = other_guard(name, **options)
    mean = guard.calibration.mean
    evidence = guard.evidence(mean)
    assert len(evidence) == layers
    assert len({part.layer for part in evidence}) == layers
    assert [part.layer for part in evidence] == list(dict.fromkeys(guard.detector.feature_names))
    assert np.concatenate([part.values for part in evidence]).tolist() == mean.tolist()
    assert [part.rms_deviation for part in evidence] == [0.0] * layers
    assert guard.evidence_kind == "numbers"


def test_mbf_shows_the_spectrum_of_every_layer() -> None:
    evidence = guard().evidence(guard().calibration.mean)
    assert [part.layer for part in evidence] == guard().classifier.layer_names()
    assert {part.values.shape for part in evidence} == {(16,)}
    assert guard().evidence_kind == "spectrum"


def test_views_show_the_margins_of_the_image_and_of_each_view() -> None:
    toy_data = toys()
    views = bf.fit("views", toy_data.classifier, toy_data.fitted.for_attack("bim"), show_progress=False)
    guard = bf.Guard.calibrated(views, toy_data.tested.clean, 0.1, known=toy_data.fitted.clean)
    assert guard.evidence_kind == "margins"
    image = toy_data.tested.clean[:1]
    first, *others = guard.evidence(guard.check(image).features[0])
    logits = toy_data.classifier.logits(image)[0].sort(descending=True).values
    assert first.layer == "image"
    assert first.values == pytest.approx((logits[0] - logits[1:3]).tolist(), abs=1e-4)
    assert [view.layer for view in others] == list(dict.fromkeys(views.feature_names))[1:]


def test_a_push_is_what_the_score_loses_with_the_layer_of_clean_images() -> None:
    features = guard().check(toys().tested.adversarial["bim"][:3]).features
    head, mean = guard().detector.head, guard().calibration.mean
    for row in features:
        (score,) = head.score(torch.from_numpy(row[None])).tolist()
        for place, layer in enumerate(guard().evidence(row)):
            changed = row.copy()
            changed[16 * place : 16 * (place + 1)] = mean[16 * place : 16 * (place + 1)]
            (without,) = head.score(torch.from_numpy(changed[None])).tolist()
            assert layer.push == pytest.approx(score - without, abs=1e-9)
    # the same row at another place of a product of matrices may be rounded otherwise
    assert [layer.push for layer in guard().evidence(mean)] == pytest.approx([0.0] * 8, abs=1e-9)


def test_deviations_are_bounded_where_clean_images_never_vary() -> None:
    shape = (len(guard().classifier.layer_names()), 16)
    features, deviation = np.zeros(shape), np.ones(shape)
    features[0, :2], deviation[0, :2] = (1.0, 5.0), (1.0, 2.0)
    features[1], deviation[1:3] = 2.0, 0.0
    calibration = replace(guard().calibration, mean=np.zeros(features.size), deviation=deviation.ravel())
    first, second, third, *_ = replace(guard(), calibration=calibration).evidence(features.ravel())
    assert first.rms_deviation == pytest.approx(np.sqrt((1 + 2.5**2) / 16))
    assert (second.rms_deviation, third.rms_deviation) == (MAX_DEVIATIONS, 0.0)
