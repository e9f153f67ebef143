import pytest
import torch

from benfourier.data import LabelledImages
from benfourier.errors import InputError


def images(*values: int, ids: tuple[str, ...] = ()) -> LabelledImages:
    """Images of one pixel."""
    return LabelledImages(torch.tensor(values, dtype=torch.uint8).view(-1, 1, 1, 1), torch.tensor(values) % 3, ids)


def test_ids_are_the_rows_unless_given() -> None:
    assert images(5, 6).ids == ("0", "1")
    assert images(5, 6, ids=("a", "b")).ids == ("a", "b")


def test_rows_are_taken_in_any_order() -> None:
    some = images(5, 6, 7, ids=("a", "b", "c")).take([2, 0])
    assert (some.images.flatten().tolist(), some.labels.tolist(), some.ids) == ([7, 5], [1, 2], ("c", "a"))
    assert len(some.take([])) == 0


def test_joined_images_follow_one_another() -> None:
    both = images(5, ids=("a",)).joined(images(6, 7, ids=("b", "c")))
    assert (both.images.flatten().tolist(), both.labels.tolist(), both.ids) == ([5, 6, 7], [2, 0, 1], ("a", "b", "c"))
    with pytest.raises(InputError, match="id '0' occurs twice"):
        images(5).joined(images(6))


def test_images_are_left_out_by_content_whatever_their_ids() -> None:
    some = images(5, 6, 7, ids=("a", "b", "c")).without(images(6, 9).content_ids)
    assert some.ids == ("a", "c")
    floating = LabelledImages(torch.full((1, 1, 1, 1), 6.0), torch.zeros(1, dtype=torch.int64))
    assert images(5, 6).without(floating.content_ids).ids == ("0",)


@pytest.mark.parametrize(
    ("labels", "ids", "complaint"),
    [
        (torch.zeros(2), (), "labels are torch.float32"),
        (torch.zeros(3, dtype=torch.int64), (), r"of shape \(3,\)"),
        (torch.zeros(2, dtype=torch.int64), ("a",), "2 images and 1 ids"),
        (torch.zeros(2, dtype=torch.int64), ("a", "a"), "id 'a' occurs twice"),
    ],
)
def test_labels_and_ids_must_fit(labels: torch.Tensor, ids: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        LabelledImages(torch.zeros(2, 1, 1, 1), labels, ids)
