"""|â_n| of many rows in torch: on any device, with gradients, in float64, and without numba.

Where a gradient is asked for, θ = ½·ln(r² + δ²) with δ = SMOOTHING·rms keeps it finite at r = 0, and √(C² + S² + TINY)
where a magnitude vanishes; the mask of exact zeros counts as constant. Elsewhere both are exact.
"""

import math

import torch
from torch import Tensor

from benfourier.theory.coefficients import Zeros

SMOOTHING = 1e-6
TINY = 1e-12
BLOCK = 1 << 22  # phasors computed at once, of one row at least: temporaries of 32 MB each


def magnitudes(rows: Tensor, orders: int, *, centre: bool, zeros: Zeros) -> Tensor:
    """Returns |â_n| as (rows, orders), in float64 for float64 rows and in float32 for all others."""
    x = rows if rows.dtype == torch.float64 else rows.float()
    if centre:
        x = x - x[:, :1].detach()  # constant rows become exact zeros
        x = x - x.mean(dim=1, keepdim=True)
    present = x != 0
    entries = present.sum(dim=1, keepdim=True)  # (rows, 1)
    total = entries if zeros == "drop" else torch.full_like(entries, x.shape[1])
    # in units of the largest entry no square overflows or vanishes
    size = x.detach().abs().amax(dim=1, keepdim=True)
    size = torch.where(size == 0, 1, size)
    x = x / size
    smooth = x.requires_grad and torch.is_grad_enabled()
    turns = _smooth_log10(x, present) if smooth else torch.where(present, x.abs(), 1).log10()
    real, imaginary = _phasor_sums(turns.frac(), present, orders)
    if zeros == "one":  # a zero's phasor is 1 in the data's own units
        n = torch.arange(1, orders + 1, device=x.device, dtype=x.dtype)
        angle = (n * size.log10()).frac() * (2 * math.pi)  # (rows, orders)
        missing = x.shape[1] - entries
        real, imaginary = real + missing * angle.cos(), imaginary + missing * angle.sin()
    square = (real / total.clamp(min=1)).square() + (imaginary / total.clamp(min=1)).square()
    return torch.where(total > 0, (square + (TINY if smooth else 0)).sqrt(), 0)


def _phasor_sums(turns: Tensor, present: Tensor, orders: int) -> tuple[Tensor, Tensor]:
    """Σ exp(−j2πn·turns) over the entries that are present: real and imaginary parts, (rows, orders) each.

    With n = width·i + j, a phasor of order n is one of order width·i times one of order j, so the sums of all orders
    are one product of matrices, and phasors of about 2√orders orders are computed.
    """
    width = math.isqrt(orders - 1) + 1
    height = max(1, BLOCK // (2 * width * turns.shape[1]))
    sums = [
        (_phasors(part, range(0, orders, width)) * mask[:, None]) @ _phasors(part, range(1, width + 1)).mT
        for part, mask in zip(torch.split(turns, height), torch.split(present, height), strict=True)
    ]  # (rows, ⌈orders / width⌉, width) each
    every = torch.cat(sums).flatten(1)[:, :orders]
    return every.real, every.imag


def _phasors(turns: Tensor, orders: range) -> Tensor:
    """exp(−j2πn·turns) of each order n, (rows, orders, entries)."""
    n = torch.arange(orders.start, orders.stop, orders.step, device=turns.device, dtype=turns.dtype)
    angle = (n[:, None] * turns[:, None]).frac() * (-2 * math.pi)
    return torch.complex(angle.cos(), angle.sin())


def _smooth_log10(x: Tensor, present: Tensor) -> Tensor:
    """log10|x| with a finite slope at zero; 0 where nothing is present."""
    rms = x.detach().square().mean(dim=1, keepdim=True).sqrt()
    square = torch.where(present, x.square() + (SMOOTHING * rms) ** 2, 1)
    return square.log() * (0.5 / math.log(10))
