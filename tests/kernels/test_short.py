"""Short float32 rows, whose phasors are added one by one, and the sums of a few weighed values behind them."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from benfourier.kernels import magnitudes
from benfourier.kernels.phasors import BIAS, add_few, few_for
from benfourier.theory.coefficients import Zeros


def kinds(entries: int) -> list[Tensor]:
    x = torch.randn(20, entries, generator=torch.Generator().manual_seed(entries))
    return [x, x.relu(), (3 * x).round(), x.sign() * (x.abs() * 9).exp(), torch.full_like(x, 0.1)]


@pytest.mark.parametrize("zeros", ["drop", "count", "one"])
@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("entries", [1, 2, 10, 32, 33, 128, 256])
def test_short_rows_agree_with_the_reference_far_within_the_bound(entries: int, centre: bool, zeros: Zeros) -> None:
    for x in kinds(entries):
        exact = magnitudes(x, centre=centre, zeros=zeros, method="reference")
        found = magnitudes(x, centre=centre, zeros=zeros, method="fused")
        assert float((found - exact).abs().max()) < 2e-5  # 16 orders, 6e-7 each, and as much again


@pytest.mark.parametrize("size", [1e-44, 1e-25, 1e32, 1e38])
def test_short_rows_near_the_limits_of_float32_are_summed_exactly(size: float) -> None:
    x = (
        torch.randn(4, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).clamp(-3, 3) * size
    ).float()
    exact = magnitudes(x, method="reference")
    assert float((magnitudes(x, method="fused") - exact).abs().max()) < 1e-6


def test_many_orders_of_a_short_row_stay_within_the_bound() -> None:
    x = torch.randn(2, 256, generator=torch.Generator().manual_seed(1))
    exact = magnitudes(x, 1000, method="reference")
    assert float((magnitudes(x, 1000, method="fused") - exact).abs().max()) < 0.05 * math.sqrt(math.pi / 256) / 5


def test_weighed_values_are_added_as_if_each_were_there_so_many_times() -> None:
    draws = np.random.default_rng(0)
    value, weight = draws.standard_normal(64).astype(np.float32), draws.integers(0, 9, 64).astype(np.float32)
    value[7], value[9], mean = 0, 0.5, 0.5
    few = few_for(64)
    few.value[:], few.weight[:] = value, weight
    real, imaginary = np.zeros(16), np.zeros(16)
    entries, zeros, ties = add_few(few, 64, mean, BIAS - 0.3, real, imaginary)
    assert (zeros, ties) == (weight[7], weight[9])
    assert entries + zeros + ties == weight.sum()
    loose = (value != 0) & (value != mean)
    turns = np.log10(np.abs(value[loose].astype(np.float64) - mean)) + BIAS - 0.3
    expected = weight[loose] @ np.exp(-2j * np.pi * turns[:, None] * np.arange(1, 17))
    assert abs(real + 1j * imaginary - expected).max() < 2e-5 * entries
