from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benfourier.guard.guard import MAX_DEVIATIONS
from tests.detectors.guarded import guard, other_guard


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


def test_deviations_are_bounded_where_clean_images_never_vary() -> None:
    shape = (len(guard().classifier.layer_names()), 16)
    features, deviation = np.zeros(shape), np.ones(shape)
    features[0, :2], deviation[0, :2] = (1.0, 5.0), (1.0, 2.0)
    features[1], deviation[1:3] = 2.0, 0.0
    calibration = replace(guard().calibration, mean=np.zeros(features.size), deviation=deviation.ravel())
    first, second, third, *_ = replace(guard(), calibration=calibration).evidence(features.ravel())
    assert first.rms_deviation == pytest.approx(np.sqrt((1 + 2.5**2) / 16))
    assert (second.rms_deviation, third.rms_deviation) == (MAX_DEVIATIONS, 0.0)
