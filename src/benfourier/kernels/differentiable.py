"""|â_n| of many responses in torch: on any device, with gradients, and without numba.

Where a gradient is asked for, θ = ½·ln(r² + δ²) with δ = SMOOTHING·rms keeps it finite at r = 0, and √(C² + S² + TINY)
where a magnitude vanishes; the mask of exact zeros counts as constant. Elsewhere both are exact.
"""

import math

import torch
from torch import Tensor

from benfourier.theory.coefficients import Zeros

SMOOTHING = 1e-6
TINY = 1e-12


def magnitudes(rows: Tensor, orders: int, *, centre: bool, zeros: Zeros, channels: int = 0) -> Tensor:
    """Returns |â_n| as (rows, orders), in float64 for float64 rows and in float32 for all others."""
    x = rows if rows.dtype == torch.float64 else rows.float()
    if centre:
        x = x - x[:, :1].detach()  # constant rows become exact zeros
        x = x - x.mean(dim=1, keepdim=True)
    present = x != 0
    entries = present.sum(dim=1, keepdim=True)
    total = entries if zeros == "drop" else torch.full_like(entries, x.shape[1])
    # in units of the largest entry no square overflows or vanishes
    size = x.detach().abs().amax(dim=1, keepdim=True)
    x = x / torch.where(size > 0, size, 1)
    smooth = x.requires_grad and torch.is_grad_enabled()
    turns = _smooth_log10(x, present) if smooth else torch.where(present, x.abs(), 1).log10()
    origin = size.where(size > 0, 1).log10()
    angle = turns.frac() * (2 * math.pi)
    step_cos, step_sin = angle.cos(), -angle.sin()
    cos_n, sin_n = step_cos * present, step_sin * present
    sums = []
    for order in range(1, orders + 1):
        real, imaginary = cos_n.sum(dim=1), sin_n.sum(dim=1)
        if zeros == "one":  # a zero's phasor is 1 in the data's own units
            turn = (order * origin[:, 0]).frac() * (2 * math.pi)
            missing = (x.shape[1] - entries)[:, 0]
            real, imaginary = real + missing * turn.cos(), imaginary + missing * turn.sin()
        sums.append(torch.stack([real, imaginary]))
        if order < orders:
            cos_n, sin_n = cos_n * step_cos - sin_n * step_sin, cos_n * step_sin + sin_n * step_cos
    phasors = torch.stack(sums, dim=-1) / total.clamp(min=1)  # (2, rows, orders)
    found = (phasors.square().sum(dim=0) + (TINY if smooth else 0)).sqrt()
    return torch.where(total > 0, found, 0)


def _smooth_log10(x: Tensor, present: Tensor) -> Tensor:
    """log10|x| with a finite slope at zero; 0 where nothing is present."""
    rms = x.detach().square().mean(dim=1, keepdim=True).sqrt()
    square = torch.where(present, x.square() + (SMOOTHING * rms) ** 2, 1)
    return square.log() * (0.5 / math.log(10))
