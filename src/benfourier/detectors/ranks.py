"""Where numbers stand among those of benign images."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]


def ranks(numbers: Tensor, benign: Tensor, least: Tensor, greatest: Tensor) -> Tensor:
    """Returns for each number the share of benign ones below it, (N, D), in [0, 1].

    Equal ones count half. Between benign numbers, and from the outermost to the limits, the rank rises in a straight
    line, so that larger numbers never rank alike unless all of them are benign ones.

    Args:
        numbers: (N, D).
        benign: (B, D).
        least: (D,), what no number is below.
        greatest: (D,), what no number is above.
    """
    assert numbers.shape[1:] == benign.shape[1:] == least.shape == greatest.shape
    columns = zip(numbers.double().numpy().T, benign.numpy().T, least.tolist(), greatest.tolist(), strict=True)
    return torch.from_numpy(np.stack([_column(*column) for column in columns], axis=1))


def _column(numbers: Floats, benign: Floats, least: float, greatest: float) -> Floats:
    values, counts = np.unique(benign, return_counts=True)
    shares = (np.cumsum(counts) - counts / 2) / len(benign)
    if values[0] > least:
        values, shares = np.append(least, values), np.append(0.0, shares)
    if values[-1] < greatest:
        values, shares = np.append(values, greatest), np.append(shares, 1.0)
    return np.asarray(np.interp(numbers, values, shares), np.float64)
