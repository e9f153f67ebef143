"""Walks: every image has one use."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import benfourier as bf
from benfourier.data.arrays import ArraySource
from benfourier.data.draws import names_by_content
from benfourier.errors import InputError
from benfourier.evaluation.walk import FOLDS, Wanted, answers_of, folds_of, walk
from benfourier.store.cache import open_cache


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


SUBJECT = bf.Subject(Brightness(), size=4, channels=1)


def test_every_image_has_one_use_and_copies_have_none() -> None:
    found = walk(SUBJECT, source(), np.arange(200), Wanted(50, 40, 30), seed=0, show_progress=False)
    assert [len(part) for part in (found.sources, found.calibration, found.beyond or ())] == [50, 40, 30]
    assert found.looked == 180
    assert found.right == 162
    sets = [found.sources.images, found.calibration, found.wrong, found.beyond.images if found.beyond else None]
    names = [name for images in sets if images is not None for name in names_by_content(images)]
    assert len(names) == len(set(names))
    told = SUBJECT.logits(found.sources.images).argmax(1)
    assert torch.equal(told, found.sources.labels)
    assert 0 < len(found.wrong) <= 18


def test_a_smaller_walk_finds_the_beginning_of_a_larger_one() -> None:
    few, many = (
        walk(SUBJECT, source(), np.arange(200), Wanted(count, 0), seed=1, show_progress=False) for count in (20, 60)
    )
    assert many.sources.ids[:20] == few.sources.ids
    assert len(few.calibration) == 0


def test_images_that_are_known_do_not_come_again() -> None:
    first = walk(SUBJECT, source(), np.arange(200), Wanted(50, 0), seed=0, show_progress=False)
    known = frozenset(names_by_content(first.sources.images))
    other = walk(SUBJECT, source(), np.arange(200), Wanted(50, 0), seed=0, known=known, show_progress=False)
    assert not set(names_by_content(other.sources.images)) & known


def test_what_the_network_said_is_not_asked_again(tmp_path: Path) -> None:
    asked: list[int] = []

    class Counted(Brightness):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            asked.append(len(images))
            return super().forward(images)

    cache, wanted = open_cache(tmp_path), Wanted(50, 40, 30)
    subject = bf.Subject(Counted(), size=4, channels=1)
    rows, threads = np.arange(200), torch.get_num_threads()
    plain = walk(subject, source(), rows, wanted, seed=0, show_progress=False)
    first = walk(subject, source(), rows, wanted, seed=0, answers=answers_of(subject, cache), show_progress=False)
    before = sum(asked)
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        again = walk(subject, source(), rows, wanted, seed=0, answers=answers_of(subject, cache), show_progress=False)
    finally:
        torch.set_num_threads(threads)
    assert sum(asked) == before
    for found in (first, again):
        assert found.sources.ids == plain.sources.ids
        assert (found.looked, found.right) == (plain.looked, plain.right)
        assert torch.equal(found.wrong, plain.wrong)
    other = bf.Subject(Counted(), mean=[0.1], size=4, channels=1)
    walk(other, source(), rows, wanted, seed=0, answers=answers_of(other, cache), show_progress=False)
    assert sum(asked) > before
    assert answers_of(subject, None) is None


def test_a_network_that_knows_nothing_is_told() -> None:
    wrong = ArraySource("wrong", source().images, 1 - source().labels)
    rows = np.flatnonzero(np.arange(200) % 10 != 0)
    with pytest.raises(InputError, match=r"classifies 0 of 162 images of wrong correctly; detection needs at least 10"):
        walk(SUBJECT, wrong, rows, Wanted(50, 0), seed=0, show_progress=False)


def test_folds_take_turns_in_every_class() -> None:
    labels = [0, 1] * 50
    folds = np.array(folds_of(labels))
    for label in (0, 1):
        for count in (20, 50, 100):
            mine = folds[:count][np.array(labels[:count]) == label]
            counts = np.bincount(mine, minlength=FOLDS)
            assert counts.max() - counts.min() <= 1
