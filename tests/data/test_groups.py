"""Classes gathered in groups, and sources joined."""

import numpy as np
import pytest

from benfourier.data.sources import ArraySource, GroupedSource, JoinedSource
from benfourier.errors import InputError, OptionError

NAMES = ("ant", "bee", "cat", "dog", "elm")


def pets(name: str = "pets", side: int = 4) -> ArraySource:
    """Three images of each class; the brightness is the number of the image."""
    pixels = np.repeat(np.arange(15, dtype=np.uint8), side * side).reshape(15, side, side)
    return ArraySource(name, pixels, np.arange(15) % 5, NAMES)


def test_classes_are_gathered_by_number_range_and_name_and_the_others_left_out() -> None:
    source = pets()
    grouped = GroupedSource(source, {"insect": ["0-1"], "mammal": ["dog", 2]})
    assert grouped.classes == ("insect", "mammal")
    assert grouped.rows.tolist() == [row for row in range(15) if row % 5 != 4]
    assert grouped.labels.tolist() == [0, 0, 1, 1] * 3
    assert grouped.ids == tuple(source.ids[row] for row in grouped.rows)
    assert np.array_equal(grouped.pixels([4, 0]), source.pixels([5, 0]))


def test_other_groups_are_another_source() -> None:
    assert len({GroupedSource(pets(), {"a": [one], "b": [2, 3]}).digest for one in (0, 1, "ant")}) == 2


def test_groups_unknown_to_the_source_are_listed() -> None:
    assert GroupedSource(pets(), {"a": [0], "b": ["dog"]}).unknown_groups() == []
    assert GroupedSource(pets(), {"a": [0], "b": [7], "c": ["dgo", 1]}).unknown_groups() == ["b", "dgo"]


@pytest.mark.parametrize(
    ("groups", "complaint"),
    [
        ({"a": ["0-2"], "b": [2]}, "b holds 2, and so does a; a class has one group at most"),
        ({"a": [2], "b": ["cat"]}, "a and b both hold class 2, 'cat'; a class has one group at most"),
        ({"a": ["3-1"], "b": [2]}, "'3-1' ends before it begins"),
    ],
)
def test_a_class_has_one_group(groups: dict[str, list[int | str]], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        GroupedSource(pets(), groups)


def test_groups_without_any_image_are_refused() -> None:
    with pytest.raises(InputError, match="none of its 15 images is of a group"):
        GroupedSource(pets(), {"a": [8], "b": [9]})


def test_joined_sources_are_one_with_ids_of_their_own() -> None:
    first, second = pets(), pets("more")
    joined = JoinedSource((first, second))
    assert (joined.name, len(joined), joined.classes) == ("pets + more", 30, NAMES)
    assert joined.ids[15] == f"more/{second.ids[0]}"
    assert joined.labels.tolist() == [*first.labels, *second.labels]
    assert joined.pixels([29, 3, 16])[:, 0, 0, 0].tolist() == [14, 3, 1]


def test_numbers_may_stand_for_the_names_of_classes() -> None:
    bare = ArraySource("bare", pets().pixels(range(5)), np.arange(5), tuple("01234"))
    assert len(JoinedSource((pets(), bare))) == 20


def test_sources_that_do_not_fit_are_not_joined() -> None:
    few = GroupedSource(pets("few"), {"a": [0], "b": [1]})
    with pytest.raises(InputError, match="pets and few have 5 and 2 classes"):
        JoinedSource((pets(), few))
    turned = ArraySource("turned", pets().pixels([0, 1]), np.array([0, 1]), NAMES[::-1])
    with pytest.raises(InputError, match=r"pets and turned have 'ant' and 'elm' as class 0; .* in the same order"):
        JoinedSource((pets(), turned))
    with pytest.raises(InputError, match="two sources are called pets"):
        JoinedSource((pets(), pets()))
    with pytest.raises(InputError, match="give them one size"):
        JoinedSource((pets(), pets("large", 8))).pixels([0, 20])
