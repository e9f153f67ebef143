"""Images on their way to examples: as they were given, and as an attack left them."""

from dataclasses import dataclass

from torch import Tensor

from benfourier.attacks.noise import CENTRES
from benfourier.attacks.roster import Entry


@dataclass(frozen=True, eq=False)
class Stock:
    """Images in float32 on the CPU, with what belongs to them, row by row."""

    images: Tensor
    labels: Tensor
    ids: tuple[str, ...]
    digests: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Tensor) -> "Stock":
        """Returns some of the rows."""
        places = rows.tolist()
        ids, digests = (tuple(column[place] for place in places) for column in (self.ids, self.digests))
        return Stock(self.images[rows], self.labels[rows], ids, digests)


@dataclass(frozen=True, eq=False, repr=False)
class Crafted:
    """What one attack made of images, and what it took.

    A row that failed holds the clean image, and its distances are infinite.

    Args:
        entry: the attack.
        images: (N, C, H, W).
        success: (N,).
        l2: (N,), of what was added, in pixel values.
        linf: (N,), the same.
        calls: (N,), forward and backward passes.
        cached: how many of the images came from the cache.
        seconds: what making the others took.
    """

    entry: Entry
    images: Tensor
    success: Tensor
    l2: Tensor
    linf: Tensor
    calls: Tensor
    cached: int
    seconds: float

    def __repr__(self) -> str:
        return f"Crafted({self.entry.label}: {int(self.success.sum())} of {len(self.success)} succeeded)"

    def l2_centre(self, centre: str = "median") -> float:
        """Returns the median or mean L2 of the successes; there must be one."""
        return float(CENTRES[centre](self.l2[self.success]))

    def linf_centre(self, centre: str = "median") -> float:
        """Returns the median or mean L∞ of the successes; there must be one."""
        return float(CENTRES[centre](self.linf[self.success]))
