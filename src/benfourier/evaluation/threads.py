"""How many threads compute."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Lets torch compute in the block as the processes of a pool do: what they keep is found by the number of threads.

    Sums are split among threads, so that the last bits depend on it.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
