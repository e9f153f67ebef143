"""One way to show progress: a bar on a terminal, nothing elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def visible(show: bool | None) -> bool:
    """True if progress should be drawn: as asked, or when standard error is a terminal."""
    return sys.stderr.isatty() if show is None else show


@contextmanager
def bar(total: int, label: str, *, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Yields advance(n); draws a bar on standard error while the block runs.

    Args:
        total: number of steps in all.
        label: what is being counted.
        show: True or False to force; None draws only on a terminal.
    """
    if not visible(show):
        yield lambda n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # elsewhere than on a terminal rich draws only what stays
    with Progress(*columns, console=console, transient=console.is_terminal) as drawn:
        task = drawn.add_task(label, total=total)
        yield lambda n: drawn.advance(task, n)


@contextmanager
def spinner(label: str, *, show: bool | None = None) -> Iterator[None]:
    """Shows a spinner on standard error while the block runs, for work without steps."""
    if not visible(show):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield
