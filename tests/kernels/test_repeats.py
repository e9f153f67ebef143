"""Rows in which channels repeat their values: backgrounds, and a ReLU's zeros after a batch norm."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from benfourier.kernels import magnitudes, stepping
from benfourier.kernels.layout import channels_of
from benfourier.kernels.repeats import STRANGE, look, note_lowest, repeats_for, take_out
from benfourier.theory.coefficients import Zeros

AS_IS, SCALE, _, RECTIFY = range(4)
SIDE = 24


def response(channels: int, flat: float) -> Tensor:
    """Responses whose pixels have, but for some, the value that each channel has where the row begins."""
    draws = torch.Generator().manual_seed(channels)
    found = torch.randn(5, channels, SIDE, SIDE, generator=draws)
    background = torch.rand(SIDE, SIDE, generator=draws) < flat
    background[0, 0] = True
    found[:, :, background] = torch.randn(5, channels, 1, generator=draws)
    return found.contiguous(memory_format=torch.channels_last)


def walked(x: Tensor, kinds: list[int], centre: bool, zeros: Zeros) -> tuple[list[Tensor], Tensor]:
    """The response after each step by torch, and |â_n| of each by the kernel."""
    channels = x.shape[1]
    scale = torch.linspace(-1, 2, channels)
    shift = torch.linspace(2, -1, channels)
    steps = stepping.steps_of(kinds, scale.numpy(), shift.numpy())
    end, found, refused = stepping.walk(x, steps, None, 16, centre=centre, zeros=zeros)
    assert not refused
    after = [x]
    for kind in kinds[1:]:
        after.append(after[-1].relu() if kind == RECTIFY else after[-1] * scale.view(-1, 1, 1) + shift.view(-1, 1, 1))
    after[-1] = end  # with the last bits that the kernel gave it
    return after, found


@pytest.mark.parametrize("zeros", ["drop", "count", "one"])
@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("kinds", [[AS_IS, RECTIFY], [AS_IS, RECTIFY, SCALE], [AS_IS, SCALE]])
@pytest.mark.parametrize("channels", [3, 16, 24, 64])
def test_rows_that_repeat_values_agree_with_the_reference(
    channels: int, kinds: list[int], centre: bool, zeros: Zeros
) -> None:
    limit = 0.05 * math.sqrt(math.pi / (channels * SIDE**2))
    for flat in (0.0, 0.2, 0.7, 1.0):
        after, found = walked(response(channels, flat), kinds, centre, zeros)
        for row, mine in zip(after, found, strict=True):
            exact = magnitudes(row, 16, centre=centre, zeros=zeros, method="reference")
            assert (mine - exact).abs().max() <= limit


def test_repeats_are_looked_for_only_where_a_channel_is_long_enough() -> None:
    row = np.ones(16 * 100, np.float32)
    assert not look(row, 16, STRANGE, row, repeats_for(16, len(row)))
    row = np.ones(16 * 400, np.float32)
    assert look(row, 16, STRANGE, row, repeats_for(16, len(row)))
    row = np.random.default_rng(0).standard_normal(16 * 400).astype(np.float32)
    assert not look(row, 16, STRANGE, row, repeats_for(16, len(row)))


def test_pooled_rows_that_repeat_their_lowest_values_agree_with_the_reference() -> None:
    draws = torch.Generator().manual_seed(0)
    shift = torch.randn(64, 1, 1, generator=draws)
    x = torch.maximum(torch.randn(4, 64, 12, 12, generator=draws), shift)
    x[:, :, :6] = torch.randn(4, 64, 1, 1, generator=draws).abs() + shift
    for layout in (torch.contiguous_format, torch.channels_last):
        y = x.contiguous(memory_format=layout)
        exact = magnitudes(y, 16, method="reference")
        assert float((magnitudes(y, 16, method="fused") - exact).abs().max()) <= 0.05 * math.sqrt(
            math.pi / x[0].numel()
        )


def test_the_lowest_value_of_each_channel_is_taken_out_with_the_first() -> None:
    row = np.random.default_rng(0).standard_normal((400, 16)).astype(np.float32)
    row[50:100], row[100:200] = row[0], row.min(axis=0) - 1
    repeats = repeats_for(16, row.size)
    assert look(row.ravel(), 16, STRANGE, row.ravel(), repeats)
    note_lowest(row.ravel(), 16, repeats)
    assert take_out(row.ravel(), repeats) == 249 * 16
    assert repeats.few.weight.sum() == 151 * 16


def test_channels_are_counted_only_where_they_are_last_in_memory() -> None:
    x = torch.zeros(2, 8, 6, 4)
    assert channels_of(x) == 0
    assert channels_of(x.contiguous(memory_format=torch.channels_last)) == 8
    assert channels_of(x.flatten(1)) == 0


@pytest.mark.parametrize("side", [12, 15, 21])
def test_channels_last_rows_that_are_no_whole_blocks_agree_with_the_reference(side: int) -> None:
    flat = torch.full((3, 3, side, side), 0.1)
    some = response(3, 0.5)[:3, :, :side, :side]
    for x in (flat, some):
        y = x.contiguous(memory_format=torch.channels_last)
        exact = magnitudes(y, 16, method="reference")
        assert float((magnitudes(y, 16, method="fused") - exact).abs().max()) <= 0.05 * math.sqrt(
            math.pi / x[0].numel()
        )
