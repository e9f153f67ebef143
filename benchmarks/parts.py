"""Our attacks with one part of their speed switched off."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from torch import Tensor

from benfourier.attacks.hunt import Hunt, Value
from benfourier.attacks.quick import Quick

TOLERANCE, SHARED_FORWARD, LAYOUT, SHORTCUTS = "tolerance", "shared_forward", "layout", "shortcuts"


class OwnForward(Hunt):
    """Every gradient by a forward pass of its own, and logits by another where Foolbox's loop needs one for them."""

    def slopes(self, images: Tensor, rows: Tensor, values: Sequence[Value]) -> tuple[Tensor, list[Tensor]]:
        """Returns what the other one does."""
        shared = super().slopes
        apart = [shared(images, rows, [value]) for value in values]
        logits = self.logits(images, rows) if len(values) == 1 else apart[0][0]
        return logits, [gradients[0] for _, gradients in apart]


def _changed(change: Callable[[Quick], Quick]) -> type[Hunt]:
    """A hunt with other passes."""

    class Changed(Hunt):
        def __init__(self, *given: Any, quick: Quick) -> None:
            super().__init__(*given, quick=change(quick))  # type: ignore[misc]

    return Changed


HUNTS = {
    SHARED_FORWARD: OwnForward,
    LAYOUT: _changed(lambda quick: Quick(shortcuts=quick.shortcuts)),
    SHORTCUTS: _changed(lambda quick: replace(quick, shortcuts=())),
}


@contextmanager
def without(part: str | None) -> Iterator[dict[str, bool]]:
    """Switches a part off while the block runs, if one is named; yields the options that this needs."""
    if part == TOLERANCE:
        yield {"exact": True}
    elif part is not None:
        with patch("benfourier.attacks.attack.Hunt", HUNTS[part]):
            yield {}
    else:
        yield {}
