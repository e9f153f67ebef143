"""One way to show progress: a bar on a terminal, nothing elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """What a bar hands out: call it when steps are done."""

    def __call__(self, n: int, note: str = "") -> None:
        """Counts n more steps; a note that is not empty is shown behind the bar until the next one."""
        ...


def visible(show: bool | None) -> bool:
    """True if progress should be drawn: as asked, or when standard error is a terminal."""
    return sys.stderr.isatty() if show is None else show


@contextmanager
def bar(total: int, label: str, *, show: bool | None = None) -> Iterator[Advance]:
    """Yields advance(n, note=""); draws a bar on standard error while the block runs.

    Args:
        total: number of steps in all.
        label: what is being counted.
        show: True or False to force; None draws only on a terminal.
    """
    if not visible(show):
        yield lambda n, note="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    label_column, note_column = TextColumn("{task.description}"), TextColumn("{task.fields[note]}", markup=False)
    columns = (label_column, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), note_column)
    console = Console(stderr=True)
    # elsewhere than on a terminal rich draws only what stays
    with Progress(*columns, console=console, transient=console.is_terminal) as drawn:
        task = drawn.add_task(label, total=total, note="")

        def advance(n: int, note: str = "") -> None:
            drawn.update(task, advance=n, note=note or drawn.tasks[task].fields["note"])

        yield advance


@contextmanager
def spinner(label: str, *, show: bool | None = None) -> Iterator[None]:
    """Shows a spinner and the time that has passed on standard error while the block runs, for work without steps."""
    if not visible(show):
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        drawn.add_task(label, total=None)
        yield
