"""The subject as attacks of other libraries take it: images from 0 to 1, calls counted, draws by id."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from benfourier.attacks.draws import borrowed
from benfourier.attacks.hunt import Hunt, margins
from benfourier.errors import MissingExtraError

Strike = Callable[["Guest", Tensor, Tensor, int], Tensor]  # network, images in [0, 1], labels, seed; to images


class Guest(nn.Module):
    """The subject's logits of images in [0, 1], each pass counted for the rows that it serves."""

    def __init__(self, hunt: Hunt, rows: Tensor) -> None:
        super().__init__()
        self.training = False
        self.hunt, self.rows = hunt, rows

    def forward(self, images: Tensor) -> Tensor:
        """Returns the logits; their backward pass, if there is one, is counted as well."""
        self._count(len(images))
        logits = self.hunt.forward(self.hunt.low + self.hunt.span * images)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: self._count(len(images)))  # type: ignore[no-untyped-call]
        return logits

    def _count(self, images: int) -> None:
        self.hunt.calls[self.rows] += -(-images // len(self.rows))


def play(hunt: Hunt, strike: Strike, *, alone: bool) -> None:
    """Offers what another library's attack finds.

    An attack that draws at random meets each image alone, under the image's own seed: its draws belong to the
    image then, and not to the batch.

    Args:
        hunt: the images.
        strike: the attack.
        alone: whether it is known to draw; otherwise it is tried on all images at once, and again if it drew.
    """
    if not alone and _meet(hunt, strike, hunt.rows):
        return
    for row in hunt.rows:
        _meet(hunt, strike, row.view(1), alone=True)


def _meet(hunt: Hunt, strike: Strike, rows: Tensor, *, alone: bool = False) -> bool:
    """Offers what is found for the rows, unless it was drawn for several at once; True if it was offered."""
    unit = ((hunt.clean[rows] - hunt.low) / hunt.span).clamp(0, 1)
    seed = hunt.generators[int(rows[0])].initial_seed()
    with borrowed(seed) as drawn, torch.enable_grad():
        found = strike(Guest(hunt, rows), unit, hunt.labels[rows], seed).detach()
        if drawn() and not alone:
            return False
    images = (hunt.low + hunt.span * found.to(hunt.clean)).clamp(hunt.low, hunt.high)
    won = margins(hunt.logits(images, rows), hunt.labels[rows]) > 0
    hunt.offer(images, rows, won)
    return True


@contextmanager
def optional(extra: str) -> Iterator[None]:
    """Turns a failing import in the block into MissingExtraError with the command that installs the extra."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Please import `gaussian_filter`", DeprecationWarning)  # by foolbox
            yield
    except ImportError as error:
        raise MissingExtraError(
            f"the extra {extra!r} cannot be imported ({error}); install it with: pip install 'benfourier[{extra}]'"
        ) from error
