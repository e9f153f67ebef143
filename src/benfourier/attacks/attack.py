"""What an attack is, and what it returns. One attack is one file: options, and `run`."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from benfourier.attacks.run import AttackRun
from benfourier.options import Options, Registry


@dataclass(frozen=True, kw_only=True)
class Attack(Options, ABC):
    """An untargeted attack; its fields are its options. Decorate a subclass with `register_attack`."""

    library: ClassVar[str] = ""  # distribution that does the work, if it is not ours; its version is in the cache key
    revision: ClassVar[int] = 1  # in the cache key too; raise it when the attack gives other images
    cost: ClassVar[int] = 1  # expensive attacks, those with a higher cost, are begun first

    @property
    def margin(self) -> float:
        """By how much another logit must lead the label's for a success."""
        return 0.0

    @abstractmethod
    def run(self, run: AttackRun) -> None:
        """Records adversarial images of `run.rows`; the nearest one of each row stays."""


ATTACKS: Registry[Attack] = Registry("attack")


def register_attack(kind: type[Attack]) -> type[Attack]:
    """Adds an attack, so that its id works wherever ids do; used as a decorator."""
    return ATTACKS.register(kind)


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult:
    """Result of an attack, row by row.

    A row that failed holds the clean image, and its distances are infinite. `images` is on the device of the clean
    images; everything else is on the CPU.
    """

    name: str  # id of the attack
    options: Mapping[str, Any]  # every option by name, also those left at their default
    seed: int  # of all random draws
    ids: tuple[str, ...]  # one id per image; its draws depend on it
    images: Tensor  # (N, C, H, W), within the classifier's bounds
    success: Tensor  # (N,), True where a last forward pass over exactly these images gives another class
    already: Tensor  # (N,), True where the clean image is misclassified, so that nothing was added to it
    l2: Tensor  # (N,), Euclidean length of the perturbation, in pixel values, float64
    linf: Tensor  # (N,), largest absolute value of the perturbation, in pixel values, float64
    calls: Tensor  # (N,), forward and backward passes of each image, the checks before and after included
    seconds: float  # time that the whole call took
    cached: int = 0  # how many of the images came from the cache

    @property
    def median_l2(self) -> float:
        """Median L2 of the successes; NaN if there are none."""
        return float(self.l2[self.success].quantile(0.5)) if self.success.any() else float("nan")

    @property
    def median_linf(self) -> float:
        """Median L∞ of the successes; NaN if there are none."""
        return float(self.linf[self.success].quantile(0.5)) if self.success.any() else float("nan")

    def __repr__(self) -> str:
        medians = f"median l2 {self.median_l2:.3g}, linf {self.median_linf:.3g}, " if self.success.any() else ""
        return (
            f"AttackResult({self.name}: {int(self.success.sum())} of {len(self.ids)} succeeded, {medians}"
            f"{float(self.calls.double().mean()):.0f} calls per image, {self.seconds:.2g} s)"
        )
