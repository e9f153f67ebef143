"""The bandwidth of kernel densities, from the points themselves."""

import math

import numpy as np
import torch
from torch import Tensor

from benfourier.detectors.densities import log_mean_kernel, squared_distances

QUERIES = 500  # points of a class that vote for a bandwidth, at most
FACTORS = np.logspace(-2, 1, 25)  # bandwidths to try, in units of the points' own spread


def best_bandwidth(points: Tensor, labels: Tensor, seed: int) -> float:
    """Returns the bandwidth under which points are likeliest, each left out of its class's density in turn.

    Points that coincide with the one left out do not count: copies would ask for no width at all.
    """
    data = points.double() - points.double().mean(0)
    spread = _spread(data, labels)
    if spread == 0:  # no two different points of one class
        labels = torch.zeros_like(labels)
        spread = _spread(data, labels) or 1.0
    widths = [float(spread * factor) for factor in FACTORS]
    total = torch.zeros(len(widths), dtype=torch.float64)
    draw = torch.Generator().manual_seed(seed)
    for label in sorted(set(labels.tolist())):
        members = data[labels == label]
        asked = members[torch.randperm(len(members), generator=draw)[:QUERIES]]
        squared = squared_distances(asked, members)
        lengths = asked.square().sum(1, keepdim=True) + members.square().sum(1)
        squared = squared.masked_fill(squared <= 1e-12 * lengths, torch.inf)
        counts = squared.isfinite().sum(1)
        squared, counts = squared[counts > 0], counts[counts > 0]
        total += torch.stack([log_mean_kernel(squared, counts, width, data.shape[1]).sum() for width in widths])
    return widths[int(total.argmax())] if bool(total.any()) else spread


def _spread(data: Tensor, labels: Tensor) -> float:
    """Root of the mean variance within classes; 0 if no class has two different points."""
    parts = [data[labels == label] for label in sorted(set(labels.tolist()))]
    scatter = sum(float((part - part.mean(0)).square().sum()) for part in parts)
    return math.sqrt(scatter / data.numel()) if scatter > 1e-12 * float(data.square().sum()) else 0.0
