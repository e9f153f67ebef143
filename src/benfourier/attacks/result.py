"""What an attack found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult:
    """The images an attack found, row by row beside those it was given.

    A row that failed holds the clean image, and its distances are infinite. `images` is where the clean images were;
    everything else is on the CPU.

    Args:
        name: id of the attack.
        options: every option by name, those left at their default too.
        seed: of all random draws.
        ids: whose draws they were, one id per image.
        images: (N, C, H, W), within the subject's bounds.
        success: (N,), True where the subject is misled: by a fresh forward pass over exactly these images.
        already: (N,), True where the clean image misled the subject, so that nothing was added to it.
        l2: (N,), Euclidean length of what was added, in pixel values, float64.
        linf: (N,), largest absolute value of what was added, in pixel values, float64.
        calls: (N,), forward and backward passes that each image took, the checks before and after included.
        seconds: time that the whole call took.
    """

    name: str
    options: Mapping[str, Any]
    seed: int
    ids: tuple[str, ...]
    images: Tensor
    success: Tensor
    already: Tensor
    l2: Tensor
    linf: Tensor
    calls: Tensor
    seconds: float

    def __repr__(self) -> str:
        won = int(self.success.sum())
        medians = f"median l2 {self._median(self.l2):.3g}, linf {self._median(self.linf):.3g}, " if won else ""
        mean = float(self.calls.double().mean())
        return (
            f"AttackResult({self.name}: {won} of {len(self.ids)} succeeded, {medians}"
            f"{mean:.0f} calls per image, {self.seconds:.2g} s)"
        )

    def _median(self, distances: Tensor) -> float:
        """The median over the rows that succeeded."""
        return float(distances[self.success].quantile(0.5))
