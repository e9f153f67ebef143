"""Element-wise steps of a network, and |â_n| after each, in one pass: while an image's numbers are in cache."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.kernels import chain, circle, loops
from benfourier.kernels.fused import LONG, POLICIES, SHORT, float_ways
from benfourier.kernels.lanes import LANES
from benfourier.kernels.steps import AS_IS, RECTIFY, SCALE
from benfourier.kernels.team import share, threads
from benfourier.theory.coefficients import Zeros

CHAIN = [AS_IS, RECTIFY, SCALE]  # steps that have a loop of their own


@dataclass(frozen=True)
class Steps:
    """Steps, numbered as in `kernels.steps`, and what SCALE multiplies channels with and adds, in whole blocks."""

    kinds: NDArray[np.int64]
    scale: NDArray[np.float32]
    shift: NDArray[np.float32]


def steps_of(kinds: Sequence[int], scale: NDArray[np.float32], shift: NDArray[np.float32]) -> Steps:
    """Returns the steps as `walk` takes them; scale and shift have one number per channel."""
    times = LANES // math.gcd(LANES, len(scale))
    return Steps(np.array(kinds, np.int64), np.concatenate((scale,) * times), np.concatenate((shift,) * times))


def suits(x: Tensor, other: Tensor | None, orders: int) -> bool:
    """True for responses that can be walked: channels-last float32 on the CPU, rows neither short nor endless."""
    if x.ndim != 4 or x.dtype != torch.float32 or x.device.type != "cpu" or len(x) < threads():
        return False
    length = x.numel() // len(x)
    return (
        SHORT < length <= LONG
        and length % LANES == 0
        and circle.bins_for(length, orders) > 0
        and x.is_contiguous(memory_format=torch.channels_last)
        and (other is None or (other.dtype == x.dtype and other.shape == x.shape and other.stride() == x.stride()))
    )


def walk(
    x: Tensor, steps: Steps, other: Tensor | None, orders: int, *, centre: bool, zeros: Zeros, own: bool = False
) -> tuple[Tensor, Tensor, bool]:
    """Returns what the steps make of x, |â_n| after each as (steps, images, orders), and if any row was refused.

    Rows that are refused have NaN, and can be heard in another way: their response is as it was.

    Args:
        x: responses that `suits` has agreed to.
        steps: from `steps_of`.
        other: what ADD adds.
        orders: number of orders.
        centre: subtract each row's mean first.
        zeros: what becomes of exact zeros, "drop", "count" or "one".
        own: nobody else has x, so that it may be overwritten.
    """
    number = len(x)
    length = x.numel() // number
    chained = steps.kinds.tolist() == CHAIN
    target = x if own and chained else torch.empty_like(x)
    out = np.empty((len(steps.kinds), number, orders), np.float32)
    addresses = x.data_ptr(), (x if other is None else other).data_ptr(), target.data_ptr()
    loop = chain.chain_rows if chained else loops.step_rows
    options = steps.scale, steps.shift, steps.kinds, centre, POLICIES[zeros], float_ways(length, orders)
    share(loop, number, addresses, length, x.shape[1], *options, out)
    return target, torch.from_numpy(out), not chained and loops.any_refused(out)
