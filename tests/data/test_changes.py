"""Changes of clean images: what each does, within bounds and the same for the same pixels."""

import pytest
import torch
from torch import Tensor

from benfourier.data.changes import OTHER_KINDS, change
from benfourier.store.vocabulary import CHANGES


def images_of(channels: int = 3, side: int = 16) -> Tensor:
    return torch.rand(4, channels, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_change_keeps_shape_and_bounds_whatever_these_are(name: str, channels: int) -> None:
    images = images_of(channels)
    changed = change(name, images, (0.0, 1.0))
    assert changed.shape == images.shape
    assert 0 <= float(changed.min()) <= float(changed.max()) <= 1
    assert not torch.equal(changed, images)
    if name != "noise":  # its draws belong to the pixels as they are
        assert torch.allclose(change(name, 255 * images - 7, (-7.0, 248.0)), 255 * changed - 7, atol=1.01)


@pytest.mark.parametrize("name", OTHER_KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_of_another_kind_has_the_size_and_bounds_of_the_image_in_whose_place_it_is(
    name: str, channels: int
) -> None:
    images = images_of(channels, side=12)
    others = change(name, images, (0.0, 1.0))
    assert others.shape == images.shape
    assert 0 <= float(others.min()) < float(others.max()) <= 1
    assert torch.equal(change(name, images[2:], (0.0, 1.0)), others[2:])


def test_images_of_other_kinds_are_what_they_are_called() -> None:
    images = images_of()
    kinds = {name: change(name, images, (0.0, 1.0)) for name in OTHER_KINDS}
    assert torch.equal(kinds["inverted"], 1 - images)
    assert float(kinds["one colour"].flatten(2).std(2).max()) < 1e-6
    assert set(kinds["binary noise"].flatten().tolist()) == {0.0, 1.0}
    assert all(len(set(channel.flatten().tolist())) == 2 for image in kinds["checkerboards"] for channel in image)
    for board in kinds["checkerboards"]:
        first, other = board[:, 0, 0], board[:, -1, 0]  # an even number of squares along each side
        assert torch.equal(board[:, 0, -1], other)
        assert torch.equal(board[:, -1, -1], first)
        assert not torch.equal(first, other)


def test_noise_is_at_most_eight_levels_and_belongs_to_the_pixels() -> None:
    images = 0.25 + 0.5 * images_of()
    changed = change("noise", images, (0.0, 1.0))
    assert 7 / 255 < float((changed - images).abs().max()) <= 8 / 255 + 1e-6
    assert torch.equal(change("noise", images[2:], (0.0, 1.0)), changed[2:])


def test_a_blur_leaves_a_flat_image_and_halves_a_checkerboard() -> None:
    flat = torch.full((1, 3, 8, 8), 0.3)
    assert torch.allclose(change("blurred", flat, (0.0, 1.0)), flat)
    board = (torch.arange(8)[:, None] + torch.arange(8)) % 2
    blurred = change("blurred", board.float().expand(1, 1, 8, 8), (0.0, 1.0))
    assert torch.allclose(blurred, torch.full_like(blurred, 0.5))


def test_brighter_images_are_cut_off_at_white() -> None:
    assert change("brighter", torch.tensor([0.5, 0.9]).view(1, 1, 1, 2), (0.0, 1.0)).flatten().tolist() == [
        pytest.approx(0.6),
        1.0,
    ]


def test_jpeg_changes_a_smooth_image_little() -> None:
    ramp = torch.linspace(0, 1, 32).expand(1, 3, 32, 32)
    assert float((change("jpeg", ramp, (0.0, 1.0)) - ramp).abs().mean()) < 0.02
