"""Magnitudes |â_n| of the Benford-Fourier coefficients of many responses at once, three ways behind one function.

- `reference`: float64, by the definition.
- `differentiable`: torch, any device, with gradients; the fall-back where numba cannot be used.
- `fused`: numba on the CPU; within max(1e-6, a tenth of ½√(π/M)) of the reference.
"""

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from benfourier.errors import InputError, OptionError, check_choice, check_whole
from benfourier.kernels.layout import channels_of
from benfourier.kernels.layout import rows_of as rows_of
from benfourier.theory.coefficients import ZEROS, Zeros

Method = Literal["auto", "reference", "differentiable", "fused"]


class Kernel(Protocol):
    """Rows (images, entries) in, |â_n| (images, orders) out; NaN for rows that are not finite.

    Channels that are last in memory may repeat their values, which some kernels make use of.
    """

    def __call__(self, rows: Tensor, orders: int, *, centre: bool, zeros: Zeros, channels: int = 0) -> Tensor:
        """Returns the magnitudes."""
        ...


def magnitudes(
    responses: Tensor, orders: int = 16, *, centre: bool = True, zeros: Zeros = "drop", method: Method = "auto"
) -> Tensor:
    """Returns |â_n|, n = 1..orders, of each image's responses: (images, orders).

    Args:
        responses: floating tensor whose first dimension counts images; any dense memory layout is read in place.
        orders: number of orders.
        centre: subtract the mean of each image's responses first.
        zeros: exact zeros after centring are left out of the sum and of M ("drop"), left out of the sum only
            ("count"), or taken as the phasor 1 ("one"). A response without any other entry gives zeros.
        method: "reference", "differentiable" or "fused"; "auto" is fused on the CPU unless gradients are asked for.

    Rows with NaN or infinite entries come back as NaN.
    """
    check_options(orders, zeros, method)
    if not responses.is_floating_point() or responses.ndim < 1:
        raise InputError(
            f"responses are {responses.dtype} of shape {tuple(responses.shape)}; "
            "they must be a floating tensor with one row per image"
        )
    return unchecked_magnitudes(responses, orders, centre=centre, zeros=zeros, method=method)


def check_options(orders: int, zeros: Zeros, method: Method) -> None:
    """Raises OptionError unless all three are allowed."""
    check_whole("orders", orders)
    check_choice("zeros", zeros, ZEROS)
    check_choice("method", method, get_args(Method))


def unchecked_magnitudes(responses: Tensor, orders: int, *, centre: bool, zeros: Zeros, method: Method) -> Tensor:
    """The same for a caller in a hurry, who has checked the options once for many responses."""
    rows = rows_of(responses)
    if rows.numel() == 0:
        return rows.new_zeros(len(rows), orders, dtype=torch.float32)
    return _pick(method, rows)(rows, orders, centre=centre, zeros=zeros, channels=channels_of(responses))


def _pick(method: Method, rows: Tensor) -> Kernel:
    """The kernel that answers for these rows."""
    if method == "auto":
        wants_gradient = rows.requires_grad and torch.is_grad_enabled()
        usable = rows.device.type == "cpu" and not wants_gradient and _has_numba()
        method = "fused" if usable else "differentiable"
    if method != "differentiable" and rows.device.type != "cpu":
        raise OptionError(f"method {method!r} works on the CPU only; these responses are on {rows.device}")
    return _kernel(method)


@cache
def _has_numba() -> bool:
    """True if the fused kernel can be imported; a numba that is missing or broken is mentioned once."""
    try:
        import_module("benfourier.kernels.fused")
    except ImportError as error:
        warnings.warn(f"the fused kernel cannot be used ({error}); the slower torch kernel answers", stacklevel=4)
        return False
    return True


@cache
def _kernel(method: Method) -> Kernel:
    """The kernel of that name, imported when it is first asked for."""
    home: ModuleType = import_module(f"benfourier.kernels.{method}")
    kernel: Kernel = home.magnitudes
    return kernel


@cache
def step_kernel() -> ModuleType | None:
    """The kernel that takes element-wise steps and |â_n| after each, or None without numba."""
    return import_module("benfourier.kernels.stepping") if _has_numba() else None
