"""`bench`: a network alone, with features, and behind a guard."""

import pytest
import torch

import benfourier as bf
from benfourier.errors import ClassifierError, OptionError
from tests.detectors.guarded import guard


def test_everything_is_timed_per_image() -> None:
    timing = bf.bench(guard().classifier, guard(), batch=2, rounds=1)
    assert list(timing.ms_per_image) == ["network", "with features", "behind the guard"]
    assert all(ms > 0 for ms in timing.ms_per_image.values())
    assert timing.layers == len(guard().classifier.layers())
    assert timing.activations == sum(layer.entries for layer in guard().classifier.layers())
    assert timing.threads == torch.get_num_threads()


def test_without_a_guard_the_network_and_its_features_are_timed() -> None:
    assert list(bf.bench(guard().classifier, batch=1, rounds=1).ms_per_image) == ["network", "with features"]


def test_counts_below_one_and_unknown_shapes_are_refused() -> None:
    with pytest.raises(OptionError, match="rounds is 0"):
        bf.bench(guard().classifier, rounds=0)
    with pytest.raises(ClassifierError, match="give the Classifier its size"):
        bf.bench(bf.Classifier(torch.nn.Flatten()))
