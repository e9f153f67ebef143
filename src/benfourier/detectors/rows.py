"""Numbers of examples, row by row, with what is known of them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.examples import Examples


@dataclass(frozen=True, eq=False)
class Part:
    """Images of one kind with the ids of their source images."""

    kind: str
    images: Tensor
    ids: tuple[str, ...]
    adversarial: bool


@dataclass(frozen=True, eq=False)
class Rows:
    """What a measure says of examples.

    Args:
        numbers: float64 (N, D).
        adversarial: bool (N,).
        sources: source image of each row; twins share it.
        kinds: "clean", "noisy" or the name of an attack, one per row.
    """

    numbers: Tensor
    adversarial: NDArray[np.bool_]
    sources: tuple[str, ...]
    kinds: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def benign(self) -> Tensor:
        """The rows of clean and noisy images."""
        return self.numbers[torch.from_numpy(~self.adversarial)]

    def take(self, indices: NDArray[np.intp]) -> "Rows":
        """Returns some of the rows."""
        return Rows(
            self.numbers[torch.from_numpy(indices)],
            self.adversarial[indices],
            tuple(self.sources[row] for row in indices),
            tuple(self.kinds[row] for row in indices),
        )


def parts_of(examples: Examples) -> Iterator[Part]:
    """Yields clean and noisy images, and each attack's where it succeeded."""
    yield Part("clean", examples.clean, examples.ids, adversarial=False)
    yield Part("noisy", examples.noisy, examples.ids, adversarial=False)
    for attack, images in examples.attacked.items():
        won = examples.success[attack].nonzero().flatten()
        if len(won):
            yield Part(attack, images[won], tuple(examples.ids[row] for row in won.tolist()), adversarial=True)


def stacked(parts: list[tuple[Part, Tensor]]) -> Rows:
    """Returns the numbers of several parts one below the other."""
    return Rows(
        torch.cat([numbers for _, numbers in parts]),
        np.concatenate([np.full(len(part.ids), part.adversarial) for part, _ in parts]),
        tuple(source for part, _ in parts for source in part.ids),
        tuple(part.kind for part, _ in parts for _ in part.ids),
    )
