"""|â_n| of many responses by the definition, in float64: what the fast kernels are compared with."""

import torch
from torch import Tensor

from benfourier.theory.coefficients import Zeros, magnitudes_of_rows


def magnitudes(rows: Tensor, orders: int, *, centre: bool, zeros: Zeros, channels: int = 0) -> Tensor:
    """Returns |â_n| as float64 (rows, orders); NaN for rows with entries that are not finite."""
    return torch.from_numpy(magnitudes_of_rows(rows.double().numpy(), orders, centre=centre, zeros=zeros))
