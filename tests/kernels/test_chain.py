"""A convolution's response, its ReLU and the batch norm of that, which have a loop of their own."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from benfourier.kernels import magnitudes, stepping
from benfourier.kernels.steps import AS_IS, RECTIFY, SCALE


def response(channels: int = 16, seed: int = 0) -> Tensor:
    found = torch.randn(5, channels, 24, 24, generator=torch.Generator().manual_seed(seed))
    return found.contiguous(memory_format=torch.channels_last)


def numbers(channels: int = 16) -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(-1, 2, channels, dtype=np.float32), np.linspace(2, -1, channels, dtype=np.float32)


def walked(x: Tensor, kinds: list[int], scale: np.ndarray, shift: np.ndarray) -> tuple[Tensor, Tensor, bool]:
    return stepping.walk(x, stepping.steps_of(kinds, scale, shift), None, 16, centre=True, zeros="drop")


@pytest.mark.parametrize("channels", [3, 16, 24, 64])
def test_the_chain_gives_the_same_bits_as_its_steps_one_by_one(channels: int) -> None:
    x = response(channels)
    end, _, _ = walked(x, [AS_IS, RECTIFY, SCALE], *numbers(channels))
    single, _, _ = walked(x, [RECTIFY, SCALE], *numbers(channels))
    assert torch.equal(end, single)


def test_what_the_chain_hears_is_what_its_steps_one_by_one_give() -> None:
    x = response()
    _, found, _ = walked(x, [AS_IS, RECTIFY, SCALE], *numbers())
    _, single, _ = walked(x, [RECTIFY, SCALE], *numbers())
    # both are within the bound of the same truth
    assert float((found[1:] - single).abs().max()) <= 2 * 0.05 * math.sqrt(math.pi / x[0].numel())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_comes_back_as_nan_and_others_do_not(bad: float) -> None:
    x = response()
    x[2, 3, 4, 5] = bad
    _, found, _ = walked(x, [AS_IS, RECTIFY, SCALE], *numbers())
    assert found[:, 2].isnan().all()
    assert found[:, [0, 1, 3, 4]].isfinite().all()


@pytest.mark.parametrize("own", [True, False])
def test_a_row_that_is_too_large_to_count_is_summed_exactly(own: bool) -> None:
    x = response()
    x[:, :, :9] = -0.25
    x[2] *= 2.0**110
    steps = stepping.steps_of([AS_IS, RECTIFY, SCALE], *numbers())
    before = x.clone()
    end, found, refused = stepping.walk(x, steps, None, 16, centre=True, zeros="drop", own=own)
    assert not refused
    for row, mine in zip((before, before.relu(), end), found[:, 2], strict=True):
        assert float((mine - magnitudes(row[2:3], 16, method="reference")).abs().max()) < 1e-6


def test_a_response_that_is_the_walkers_own_is_overwritten_and_heard_as_before() -> None:
    steps = stepping.steps_of([AS_IS, RECTIFY, SCALE], *numbers())
    x, y = response(), response()
    end, found, _ = stepping.walk(x, steps, None, 16, centre=True, zeros="drop", own=True)
    other_end, other_found, _ = stepping.walk(y, steps, None, 16, centre=True, zeros="drop")
    assert end.data_ptr() == x.data_ptr()
    assert torch.equal(y, response())
    assert torch.equal(end, other_end)
    assert torch.equal(found, other_found)


def test_a_batch_norm_that_gives_one_value_gives_zeros() -> None:
    _, found, _ = walked(response(), [AS_IS, RECTIFY, SCALE], np.zeros(16, np.float32), np.full(16, 0.1, np.float32))
    assert (found[2] == 0).all()
    assert (found[:2] > 0).all()


def test_a_background_of_one_value_gives_zeros_at_every_step() -> None:
    x = torch.full((3, 16, 24, 24), 0.1).contiguous(memory_format=torch.channels_last)
    _, found, refused = walked(x, [AS_IS, RECTIFY, SCALE], np.full(16, 0.7, np.float32), np.full(16, 0.3, np.float32))
    assert not refused
    assert (found == 0).all()


def test_a_background_below_zero_is_one_atom_of_the_relu() -> None:
    x = response()
    x[:, :, :12] = -0.3
    end, found, _ = walked(x, [AS_IS, RECTIFY, SCALE], *numbers())
    for row, mine in zip((x, x.relu(), end), found, strict=True):
        exact = magnitudes(row, 16, method="reference")
        assert float((mine - exact).abs().max()) <= 0.05 * math.sqrt(math.pi / x[0].numel())
