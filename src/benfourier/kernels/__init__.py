"""Magnitudes |â_n| of the Benford-Fourier coefficients of many activations at once, three backends behind one function.

- `reference`: float64, by the definition.
- `numba`: the CPU, float32 and narrower; within a tenth of the noise floor ½√(π/M) of the reference, whatever the data.
- `torch`: any device, gradients, float64; answers where numba cannot be used.
"""

import warnings
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Literal, get_args

import torch
from torch import Tensor

from benfourier.errors import InputError, OptionError, check_choice, check_whole
from benfourier.kernels import torch_kernel
from benfourier.kernels.sample import offsets_of, rows_of, sample_rows
from benfourier.theory.coefficients import ZEROS, Zeros, magnitudes_of_rows

Backend = Literal["auto", "reference", "numba", "torch"]


def magnitudes(
    activations: Tensor,
    orders: int = 16,
    *,
    centre: bool = True,
    zeros: Zeros = "drop",
    entries: int | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Returns |â_n|, n = 1..orders, of each image's activations: (images, orders).

    Rows with NaN or infinite entries come back as NaN.

    Args:
        activations: Floating tensor whose first dimension counts images; any dense memory layout is read in place.
        orders: Number of orders.
        centre: Whether to subtract the mean of each image's activations first.
        zeros: What exact zeros after centring do: "drop" leaves them out of the sum and of M, "count" leaves them out
            of the sum only, "one" counts each as the phasor 1. Activations without any other entry give zeros.
        entries: Read at most so many entries of each image, one in each of as many equal strata; None reads all.
        backend: "reference", "numba" or "torch"; "auto" is numba on the CPU unless a gradient is asked for.
    """
    check_options(orders, zeros, entries, backend)
    if not activations.is_floating_point() or activations.ndim < 1:
        raise InputError(
            f"activations are {activations.dtype} of shape {tuple(activations.shape)}; "
            "they must be a floating tensor with one row per image"
        )
    if activations.numel() == 0:
        return activations.new_zeros(len(activations), orders, dtype=torch.float32)
    backend = _choose(backend, activations)
    if backend == "reference":
        exact = sample_rows(activations, entries).detach().double().numpy()
        return torch.from_numpy(magnitudes_of_rows(exact, orders, centre=centre, zeros=zeros))
    if backend == "torch" or activations.dtype == torch.float64:  # the numba kernel reads the bits of a float32
        result = torch_kernel.magnitudes(sample_rows(activations, entries), orders, centre=centre, zeros=zeros)
        return result if backend == "torch" else result.float()
    kernel = _numba_kernel()
    if activations.dtype != torch.float32:  # narrower numbers: widening the sample is cheaper than the whole
        rows, offsets = sample_rows(activations, entries).float(), None
    elif activations[0].numel() <= kernel.SHORT:  # summed in order: one order for all layouts
        rows, offsets = rows_of(activations.contiguous()), offsets_of(activations.contiguous(), entries)
    else:
        rows, offsets = rows_of(activations), offsets_of(activations, entries)
    from_numba: Tensor = kernel.magnitudes(rows, orders, centre=centre, zeros=zeros, offsets=offsets)
    return from_numba


def check_options(orders: int, zeros: Zeros, entries: int | None, backend: Backend) -> None:
    """Raises OptionError unless all four are allowed."""
    check_whole("orders", orders)
    check_choice("zeros", zeros, ZEROS)
    if entries is not None:
        check_whole("entries", entries)
    check_choice("backend", backend, get_args(Backend))


def _choose(backend: Backend, activations: Tensor) -> Backend:
    """The backend that answers for these activations."""
    on_cpu = activations.device.type == "cpu"
    if backend not in ("auto", "torch") and not on_cpu:
        raise OptionError(f"backend {backend!r} works on the CPU only; these activations are on {activations.device}")
    if backend == "auto":
        needs_gradient = activations.requires_grad and torch.is_grad_enabled()
        backend = "numba" if on_cpu and not needs_gradient and _has_numba() else "torch"
    return backend


@cache
def _has_numba() -> bool:
    """True if the numba kernel can be imported; warns once if numba is missing or broken."""
    try:
        _numba_kernel()
    except (ImportError, RuntimeError) as error:  # the latter: no folder can be written to for what it compiles
        warnings.warn(f"the numba kernel cannot be used ({error}); the slower torch kernel answers", stacklevel=4)
        return False
    return True


@cache
def _numba_kernel() -> ModuleType:
    """The numba kernel; importing numba takes a second, so that is left to the first call."""
    return import_module("benfourier.kernels.numba_kernel")
