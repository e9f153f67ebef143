"""Labelled images beyond an example set."""

from dataclasses import dataclass

import torch
from torch import Tensor

from benfourier.data.source import check_unique
from benfourier.errors import InputError


@dataclass(frozen=True, eq=False)
class Labelled:
    """Clean images with their classes.

    Args:
        images: floating tensor (N, C, H, W).
        labels: int64 (N,), the true classes.
        ids: source image of each row, unique; by default "clean-0", "clean-1" and so on.
    """

    images: Tensor
    labels: Tensor
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        labels = torch.as_tensor(self.labels)
        count = len(self.images)
        if labels.is_floating_point() or labels.dtype == torch.bool or labels.shape != (count,):
            raise InputError(
                f"labels are {labels.dtype} of shape {tuple(labels.shape)}; they must be whole numbers ({count},)"
            )
        object.__setattr__(self, "labels", labels.long())
        object.__setattr__(self, "ids", tuple(self.ids) or tuple(f"clean-{row}" for row in range(count)))
        if len(self.ids) != count:
            raise InputError(f"there are {count} images and {len(self.ids)} ids; each image needs one id")
        check_unique(self.ids, "labelled images")

    def __len__(self) -> int:
        return len(self.images)
