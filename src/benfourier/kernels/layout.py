"""Responses as rows of numbers."""

import torch
from torch import Tensor


def channels_of(responses: Tensor) -> int:
    """How many channels are last in memory, so that a row has one entry of each in turn; 0 if they are not."""
    return responses.shape[1] if responses.ndim == 4 and _is_channels_last(responses) else 0


def rows_of(responses: Tensor) -> Tensor:
    """Responses as (images, entries), contiguous; entries in memory order, so that dense layouts need no copy."""
    if responses.ndim == 4 and _is_channels_last(responses):
        responses = responses.permute(0, 2, 3, 1)
    elif not responses.is_contiguous():
        inner = sorted(range(1, responses.ndim), key=responses.stride, reverse=True)
        responses = responses.permute(0, *inner).contiguous()
    return responses.view(responses.shape[0], -1) if responses.numel() else responses.new_empty(len(responses), 0)


def _is_channels_last(responses: Tensor) -> bool:
    return responses.is_contiguous(memory_format=torch.channels_last)
