"""Selection: every image has one use."""

import numpy as np
import pytest
import torch
from torch import nn

import benfourier as bf
from benfourier.data.images import content_ids
from benfourier.data.sources import ArraySource
from benfourier.errors import InputError
from benfourier.evaluation.evaluation_data import FOLDS, assign_folds
from benfourier.evaluation.prepare import select_images


class Brightness(nn.Module):
    """Class 1 for bright images, class 0 for dark ones."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        mean = images.flatten(1).mean(1)
        return torch.stack([0.5 - mean, mean - 0.5], 1)


def source(count: int = 200) -> ArraySource:
    """Images of every brightness; each tenth has the wrong label, the last 20 are copies of the first."""
    pixels = np.repeat(np.arange(count, dtype=np.uint8), 16).reshape(count, 4, 4)
    labels = (np.arange(count) >= 128).astype(np.int64)
    labels[::10] = 1 - labels[::10]
    pixels[-20:], labels[-20:] = pixels[:20], labels[:20]
    return ArraySource("grey", pixels, labels)


CLASSIFIER = bf.Classifier(Brightness(), size=4, channels=1)


def test_every_image_has_one_use_and_copies_have_none() -> None:
    selection = select_images(
        CLASSIFIER, source(), np.arange(200), sources=50, calibration=40, extra_clean=30, seed=0, show_progress=False
    )
    parts = (selection.sources, selection.calibration, selection.extra_clean, selection.misclassified)
    assert [len(part) for part in parts[:3]] == [50, 40, 30]
    assert selection.classified == 180
    assert selection.correct == 162
    names = [name for part in parts for name in part.content_ids]
    assert len(names) == len(set(names))
    predictions = CLASSIFIER.logits(selection.sources.images).argmax(1)
    assert torch.equal(predictions, selection.sources.labels)
    assert 0 < len(selection.misclassified) <= 18


def test_a_smaller_selection_is_the_beginning_of_a_larger_one() -> None:
    few, many = (
        select_images(CLASSIFIER, source(), np.arange(200), sources=count, seed=1, show_progress=False)
        for count in (20, 60)
    )
    assert many.sources.ids[:20] == few.sources.ids
    assert len(few.calibration) == 0


def test_images_that_are_known_do_not_come_again() -> None:
    first = select_images(CLASSIFIER, source(), np.arange(200), sources=50, seed=0, show_progress=False)
    known = frozenset(content_ids(first.sources.images))
    other = select_images(CLASSIFIER, source(), np.arange(200), sources=50, seed=0, known=known, show_progress=False)
    assert not set(content_ids(other.sources.images)) & known


def test_a_network_that_classifies_nothing_correctly_is_reported() -> None:
    wrong = ArraySource("wrong", source().images, 1 - source().labels)
    rows = np.flatnonzero(np.arange(200) % 10 != 0)
    with pytest.raises(InputError, match=r"classifies 0 of 162 images of wrong correctly; detection needs at least 10"):
        select_images(CLASSIFIER, wrong, rows, sources=50, seed=0, show_progress=False)


def test_folds_take_turns_in_every_class() -> None:
    labels = [0, 1] * 50
    folds = np.array(assign_folds(labels))
    for label in (0, 1):
        for count in (20, 50, 100):
            mine = folds[:count][np.array(labels[:count]) == label]
            counts = np.bincount(mine, minlength=FOLDS)
            assert counts.max() - counts.min() <= 1
