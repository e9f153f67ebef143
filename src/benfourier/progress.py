"""Progress: a bar on a terminal; elsewhere nothing, or plain lines now and then if a program asks for them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

LINE_SECONDS = 30.0  # before the first plain line
LINE_GROWTH = 0.2  # of the time that has passed: 13 lines in ten minutes, 22 in an hour


@dataclass(eq=False)
class Count:
    """What a bar hands out: call it when steps are done."""

    label: str
    total: int
    done: int = 0
    note: str = ""
    draw: Callable[["Count"], None] | None = None  # None if no bar is drawn

    def __call__(self, n: int, note: str = "") -> None:
        """Counts n more steps; a note that is not empty is shown behind the bar until the next one."""
        self.done, self.note = self.done + n, note or self.note
        if self.draw is not None:
            self.draw(self)

    def __str__(self) -> str:
        note = f", {self.note}" if self.note else ""
        return f"{self.label}: {self.done:,} of {self.total:,}{note}"


_counts: list[Count] | None = None  # bars that are open, outermost first; None while no plain lines are printed


def visible(show: bool | None) -> bool:
    """True if progress should be drawn: as asked, or when standard error is a terminal."""
    return sys.stderr.isatty() if show is None else show


@contextmanager
def bar(total: int, label: str, *, show: bool | None = None) -> Iterator[Count]:
    """Yields advance(n, note=""); draws a bar on standard error while the block runs.

    With show=None it is drawn only on a terminal.
    """
    count = Count(label, total)
    if not visible(show):
        open_bars = _counts if show is None and _counts is not None else []
        open_bars.append(count)
        try:
            yield count
        finally:
            open_bars.remove(count)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    label_column, note_column = TextColumn("{task.description}"), TextColumn("{task.fields[note]}", markup=False)
    columns = (label_column, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), note_column)
    console = Console(stderr=True)
    # elsewhere than on a terminal rich draws only what stays
    with Progress(*columns, console=console, transient=console.is_terminal) as drawn:
        task = drawn.add_task(label, total=total, note="")
        count.draw = lambda count: drawn.update(task, completed=count.done, note=count.note)
        yield count


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


@contextmanager
def progress_lines(seconds: float = LINE_SECONDS) -> Iterator[None]:
    """Prints on standard error now and then how far the outermost bar is, unless standard error is a terminal.

    Args:
        seconds: between lines, at first; later the pauses grow with the time that has passed.
    """
    global _counts
    if visible(None) or _counts is not None:
        yield
        return
    _counts = []
    stop = Event()
    thread = Thread(target=_print_lines, args=(stop, seconds), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        _counts = None


def _print_lines(stop: Event, seconds: float) -> None:
    start = time.monotonic()
    pause = seconds
    while not stop.wait(pause):
        elapsed = time.monotonic() - start
        state = str(_counts[0]) if _counts else "working"
        sys.stderr.write(f"{elapsed:.0f} s: {state}\n")
        sys.stderr.flush()
        pause = max(seconds, LINE_GROWTH * elapsed)
