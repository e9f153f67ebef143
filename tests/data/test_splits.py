import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benfourier.data import folds, split
from benfourier.data.splits import PARTS
from benfourier.errors import InputError, OptionError


def rows(counts: list[int], twins: int = 1) -> tuple[list[str], list[int]]:
    """Ids and labels of some classes, every source image with its twins."""
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    ids = [f"image-{place}" for place in range(len(labels))]
    return ids * twins, labels * twins


COUNTS = st.lists(st.integers(3, 30), min_size=1, max_size=6)
SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=60)
@given(COUNTS, SEEDS, st.integers(1, 3))
def test_no_source_image_is_in_two_parts_and_none_is_lost(counts: list[int], seed: int, twins: int) -> None:
    ids, labels = rows(counts, twins)
    parts = split(ids, labels, seed=seed)
    assert list(parts) == list(PARTS)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(len(ids)))
    sources = [{ids[row] for row in part} for part in parts.values()]
    assert sum(map(len, sources)) == len(set().union(*sources))


@settings(deadline=None, max_examples=60)
@given(COUNTS, SEEDS)
def test_every_class_is_in_every_part(counts: list[int], seed: int) -> None:
    ids, labels = rows(counts)
    for part in split(ids, labels, seed=seed).values():
        assert {labels[row] for row in part} == set(range(len(counts)))


@settings(deadline=None, max_examples=60)
@given(COUNTS, SEEDS, st.randoms())
def test_the_order_of_the_rows_does_not_matter(counts: list[int], seed: int, random: Any) -> None:
    ids, labels = rows(counts, twins=2)
    order = list(range(len(ids)))
    random.shuffle(order)
    plain = split(ids, labels, seed=seed)
    mixed = split([ids[row] for row in order], [labels[row] for row in order], seed=seed)
    for name in PARTS:
        assert sorted(ids[row] for row in plain[name]) == sorted(ids[order[row]] for row in mixed[name])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(7, 40), min_size=1, max_size=40), SEEDS)
def test_totals_are_near_their_shares(counts: list[int], seed: int) -> None:
    # with 7 images of a class no share is below one, so no part has one too many; then none of three lacks two
    ids, labels = rows(counts)
    for name, part in split(ids, labels, seed=seed).items():
        assert -1 < PARTS[name] * len(ids) - len(part) < 2


def test_shares_are_exact_where_they_can_be() -> None:
    ids, labels = rows([500] * 10)
    assert {name: len(part) for name, part in split(ids, labels, seed=1).items()} == {
        "fit": 3200,
        "calibrate": 800,
        "test": 1000,
    }


def test_small_classes_do_not_shift_the_totals() -> None:
    ids, labels = rows([10] * 10)  # 6.4, 1.6 and 2 of each
    assert [len(part) for part in split(ids, labels, seed=1).values()] == [64, 16, 20]


def test_a_seed_always_gives_the_same_split() -> None:
    ids, labels = rows([4, 3])
    parts = split(ids, labels, seed=7)
    assert {name: part.tolist() for name, part in parts.items()} == {
        name: part.tolist() for name, part in split(ids, np.array(labels), seed=7).items()
    }
    assert any((split(ids, labels, seed=seed)["test"].tolist() != parts["test"].tolist()) for seed in range(20))


def test_every_image_is_tested_about_as_often_as_the_others() -> None:
    ids, labels = rows([50, 50])
    tested = Counter(row for seed in range(400) for row in split(ids, labels, seed=seed)["test"].tolist())
    # 400 draws with p = 0.2: mean 80, deviation 8; six deviations on 100 images fail once in five million runs
    assert all(32 < tested[row] < 128 for row in range(100))


def test_images_stay_where_they_were_when_another_class_grows() -> None:
    ids, labels = rows([10, 10])
    more = split([*ids, *(f"new-{n}" for n in range(10))], [*labels, *[1] * 10], seed=0)
    firsts = [row for row in split(ids, labels, seed=0)["test"].tolist() if row < 10]
    assert [row for row in more["test"].tolist() if row < 10] == firsts


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(5, 20), min_size=1, max_size=5), st.integers(2, 5), SEEDS)
def test_folds_test_every_row_once_and_share_no_source(counts: list[int], number: int, seed: int) -> None:
    ids, labels = rows(counts, twins=2)
    rounds = folds(ids, labels, number, seed=seed)
    assert len(rounds) == number
    assert sorted(row for fold in rounds for row in fold.test.tolist()) == list(range(len(ids)))
    for fold in rounds:
        assert sorted([*fold.train.tolist(), *fold.test.tolist()]) == list(range(len(ids)))
        assert {ids[row] for row in fold.train}.isdisjoint(ids[row] for row in fold.test)
        assert {labels[row] for row in fold.test} == set(range(len(counts)))


@pytest.mark.parametrize(
    ("ids", "labels", "complaint"),
    [
        (["a", "b"], [0, 0], "class 0 has 2 source images for 3 parts; each part needs one"),
        (["a", "b", "c", "a"], [0, 0, 0, 1], "id 'a' has the labels 0 and 1"),
        (["a", "b", "c"], [0, 0], "there are 3 images and 2 labels"),
        (["a", "b", "c"], [0, 0, -1], "label -1 is unknown"),
        (["a", "b", "c"], [0.0, 0.5, 1.0], "labels are float64"),
    ],
)
def test_rows_that_cannot_be_split_are_refused(ids: list[str], labels: list[Any], complaint: str) -> None:
    with pytest.raises(InputError, match=re.escape(complaint)):
        split(ids, labels, seed=0)


def test_twins_do_not_count_as_source_images() -> None:
    with pytest.raises(InputError, match="class 0 has 2 source images"):
        split(["a", "b"] * 5, [0] * 10, seed=0)


@pytest.mark.parametrize("parts", [{}, {"a": 0.5}, {"a": 1.2, "b": -0.2}, {"a": 1.0, "b": 0.0}, {"a": float("nan")}])
def test_shares_that_do_not_add_up_are_refused(parts: dict[str, float]) -> None:
    with pytest.raises(OptionError, match="they must be positive shares that add up to 1"):
        split(["a", "b", "c"], [0, 0, 0], parts, seed=0)


def test_one_part_holds_everything_and_thirds_add_up() -> None:
    assert split(["a", "b"], [0, 1], {"all": 1.0}, seed=0)["all"].tolist() == [0, 1]
    assert [len(fold.test) for fold in folds(["a", "b", "c"], [0, 0, 0], 3, seed=0)] == [1, 1, 1]


def test_seed_and_number_must_be_whole() -> None:
    with pytest.raises(OptionError, match="seed is -1"):
        split(["a", "b", "c"], [0, 0, 0], seed=-1)
    with pytest.raises(OptionError, match="number is 1"):
        folds(["a", "b", "c"], [0, 0, 0], 1, seed=0)


@pytest.mark.parametrize("count", [3, 5, 8])
def test_parts_with_small_shares_get_their_one_from_the_largest(count: int) -> None:
    ids, labels = rows([count])
    parts = split(ids, labels, {"a": 0.9, "b": 0.05, "c": 0.05}, seed=0)
    assert [len(part) for part in parts.values()] == [count - 2, 1, 1]
