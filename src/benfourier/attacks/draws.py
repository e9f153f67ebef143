"""Global generators on loan, for libraries that draw from them."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def borrowed(seed: int) -> Iterator[Callable[[], bool]]:
    """Seeds the global generators while the block runs, for libraries that draw from them, then puts them back.

    Yields a call that says whether anything has been drawn so far.
    """
    kept = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        try:
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            before = _global_state()
            yield lambda: _global_state() != before
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])


def _global_state() -> tuple[object, ...]:
    """Everything that a draw from a global generator on the CPU would change."""
    _, keys, *rest = np.random.get_state()
    return torch.get_rng_state().numpy().tobytes(), np.asarray(keys).tobytes(), tuple(rest), random.getstate()
