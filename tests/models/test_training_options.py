import pytest
import torch

from benfourier.errors import OptionError
from benfourier.models.open_classifier import training_options
from benfourier.models.training import TrainingOptions, augment
from benfourier.models.zoo import ZOO


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_rate_rises_once_and_falls_once() -> None:
    rates = [TrainingOptions(rate=0.05).rate_at(step / 1000) for step in range(1000)]
    top = rates.index(max(rates))
    assert rates[0] == pytest.approx(0.05 / 25)
    assert top == 300
    assert rates[top] == pytest.approx(0.05)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 1e-6


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("epochs", 0, "epochs is 0; it must be a whole number of at least 1"),
        ("batch", 1, "batch is 1; it must be a whole number of at least 2"),
        ("shift", -1, "shift is -1; it must be a whole number of at least 0"),
        ("seed", 0.5, "seed is 0.5; it must be a whole number"),
        ("rate", 0.0, "rate is 0.0; it must be a number above 0"),
        ("rate", float("nan"), "rate is nan; it must be a number above 0"),
        ("momentum", 1.0, "momentum is 1.0; it must be a number above 0 and below 1"),
        ("weight_decay", -0.1, "weight_decay is -0.1; it must be a number of at least 0 and below 1"),
        ("flips", 1, "flips is 1; it must be True or False"),
    ],
)
def test_values_that_make_no_sense_are_refused(option: str, value: float, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TrainingOptions(**{option: value})  # type: ignore[arg-type]


def test_bfloat16_is_not_used_unless_asked_for() -> None:
    assert not TrainingOptions().bf16  # weights do not depend on what the CPU can do


def test_without_shift_and_flips_images_stay_as_they_are() -> None:
    pixels = torch.randint(0, 256, (5, 6, 7, 3), dtype=torch.uint8, generator=draws())
    assert torch.equal(augment(pixels, 0, draws(), flips=False), pixels)


def test_images_are_moved_by_every_number_of_pixels_up_to_the_shift_and_borders_are_repeated() -> None:
    row, column = torch.meshgrid(torch.arange(8), torch.arange(9), indexing="ij")
    pixels = torch.stack([row, column], -1).to(torch.uint8).expand(500, 8, 9, 2)
    result = augment(pixels, 2, draws(), flips=False).long()
    steps = result[:, 4, 4] - 4  # where the pixel in the middle came from
    # each of the 25 moves is missed by 500 images with probability 25 · (24/25)^500 < 1e-7
    assert {tuple(step) for step in steps.tolist()} == {(y, x) for y in range(-2, 3) for x in range(-2, 3)}
    for image, (y, x) in zip(result[:40], steps[:40].tolist(), strict=True):
        assert torch.equal(image[..., 0], (row + y).clamp(0, 7))
        assert torch.equal(image[..., 1], (column + x).clamp(0, 8))


def test_flips_mirror_about_half_of_the_images() -> None:
    pixels = torch.arange(5, dtype=torch.uint8).view(1, 1, 5, 1).expand(1000, 4, 5, 1)
    result = augment(pixels, 0, draws(), flips=True)[:, 0, :, 0].tolist()
    assert all(image in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0]) for image in result)
    # six deviations of ½√1000: fails twice in a thousand million draws
    assert abs(sum(image[0] == 4 for image in result) - 500) < 95


def test_the_same_generator_gives_the_same_moves() -> None:
    pixels = torch.randint(0, 256, (9, 6, 6, 1), dtype=torch.uint8, generator=draws())
    first, again, other = (augment(pixels, 2, draws(seed), flips=True) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_zoo_network_says_whether_images_are_mirrored_unless_told_otherwise() -> None:
    mirrored = next(name for name, entry in ZOO.items() if entry.flips)
    assert training_options(mirrored).flips
    assert not training_options(mirrored, flips=False).flips
    assert training_options("package.module:factory", epochs=3) == TrainingOptions(epochs=3)
