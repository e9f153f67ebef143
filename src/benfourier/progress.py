"""Progress: a bar on a terminal; elsewhere nothing, or plain lines now and then if a program asks for them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

FIRST_SECONDS = 10.0  # before the first plain line: work that is done by then prints none
LINE_SECONDS = 30.0  # before each further line, in the first five minutes
PASS_SECONDS = 0.5  # at least between two bars that differ by passes alone
LINE_GROWTH = 0.1  # of the time that has passed, after that: 18 lines in ten minutes, 37 in an hour


@dataclass(eq=False)
class Count:
    """What a bar hands out: call it when steps are done."""

    label: str
    total: int | None  # None if it is unknown
    done: int = 0
    note: str = ""
    draw: Callable[["Count"], None] | None = None  # None if no bar is drawn
    start: float = field(default_factory=time.monotonic)
    passes: int = 0  # of a network since the last step
    last_drawn: float = 0.0

    def __call__(self, n: int, note: str = "") -> None:
        """Counts n more steps; a note that is not empty is shown behind the bar until the next one."""
        self.done, self.note, self.passes = self.done + n, note or self.note, 0
        self._redraw(0.0)

    def add_pass(self) -> None:
        """Counts a forward pass, which is shown behind the bar."""
        self.passes += 1
        self._redraw(PASS_SECONDS)

    @property
    def remark(self) -> str:
        """What is shown behind the bar."""
        return ", ".join(filter(None, (self.note, f"{self.passes:,} passes" if self.passes else "")))

    def _redraw(self, pause: float) -> None:
        if self.draw is not None and time.monotonic() - self.last_drawn >= pause:
            self.last_drawn = time.monotonic()
            self.draw(self)

    def __str__(self) -> str:
        count = f"{self.done:,}" if self.total is None else f"{self.done:,} of {self.total:,}"
        return ", ".join(filter(None, (f"{self.label}: {count}", self._speed(), self.remark)))

    def _speed(self) -> str:
        """Steps in a second and the time left; nothing before the first step."""
        seconds = time.monotonic() - self.start
        if not self.done or seconds <= 0:
            return ""
        rate = self.done / seconds
        speed = f"{rate:.3g} a second" if rate >= 1 else f"{1 / rate:.3g} s each"
        return speed if self.total is None else f"{speed}, {duration((self.total - self.done) / rate)} left"


def duration(seconds: float) -> str:
    """Returns a time in the unit in which it is a small number."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_bars: list[Count] = []  # that are drawn or counted, outermost first
# bars and spinners that are open, outermost first; None while no plain lines are printed
_counts: list[Count | str] | None = None


def visible(show: bool | None) -> bool:
    """True if progress should be drawn: as asked, or when standard error is a terminal."""
    return sys.stderr.isatty() if show is None else show


def add_pass() -> None:
    """Counts a forward pass in the innermost bar, so that it moves while one of its steps takes long."""
    if _bars:
        _bars[-1].add_pass()


@contextmanager
def bar(total: int | None, label: str, *, show: bool | None = None) -> Iterator[Count]:
    """Yields advance(n, note=""); draws a bar on standard error while the block runs.

    With show=None it is drawn only on a terminal. A total of None is unknown.
    """
    count = Count(label, total)
    if not visible(show):
        with _counted(count, show), _passes_in(count, show):
            yield count
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    label_column, note_column = TextColumn("{task.description}"), TextColumn("{task.fields[note]}", markup=False)
    # the time that has passed moves while one step takes long, also in other processes, whose passes nobody counts here
    times = (TimeElapsedColumn(), TextColumn("<"), TimeRemainingColumn())
    columns = (label_column, BarColumn(), MofNCompleteColumn(), *times, note_column)
    console = Console(stderr=True)
    # elsewhere than on a terminal rich draws only what stays
    with Progress(*columns, console=console, transient=console.is_terminal) as drawn:
        task = drawn.add_task(label, total=total, note="")
        count.draw = lambda count: drawn.update(task, completed=count.done, note=count.remark)
        with _passes_in(count, show):
            yield count


@contextmanager
def _passes_in(count: Count, show: bool | None) -> Iterator[None]:
    """Lets passes be counted in a bar while the block runs, unless it is to be silent."""
    bars = [] if show is False else _bars
    bars.append(count)
    try:
        yield
    finally:
        bars.remove(count)


@contextmanager
def spinner(label: str, *, show: bool | None = None) -> Iterator[None]:
    """Shows a spinner and the time that has passed on standard error while the block runs, for work without steps."""
    if not visible(show):
        with _counted(label, show):
            yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        drawn.add_task(label, total=None)
        yield


@contextmanager
def _counted(work: Count | str, show: bool | None) -> Iterator[None]:
    """Lets plain lines speak of some work while the block runs, unless it is to be silent.

    The outermost work, if it took long enough for a line, has one at its end.
    """
    open_work = _counts if show is None and _counts is not None else []
    open_work.append(work)
    start = time.monotonic()
    try:
        yield
    finally:
        open_work.remove(work)
    seconds = time.monotonic() - start
    if open_work is _counts and not _counts and seconds >= FIRST_SECONDS:
        label, count = (work, "") if isinstance(work, str) else (work.label, f" {work.done:,}")
        sys.stderr.write(f"{label}:{count} done in {duration(seconds)}\n")
        sys.stderr.flush()


@contextmanager
def progress_lines() -> Iterator[None]:
    """Prints on standard error now and then how far the outermost bar is, unless standard error is a terminal.

    A line holds the time that has passed, and count, rate and time left of the bar. Work of a few seconds prints none.
    """
    global _counts
    if visible(None) or _counts is not None:
        yield
        return
    _counts = []
    stop = Event()
    thread = Thread(target=_print_lines, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        _counts = None


def _print_lines(stop: Event) -> None:
    start = time.monotonic()
    pause = FIRST_SECONDS
    while not stop.wait(pause):
        elapsed = time.monotonic() - start
        state = _counts[0] if _counts else "working"
        sys.stderr.write(f"{elapsed:.0f} s: {state}\n")
        sys.stderr.flush()
        pause = max(LINE_SECONDS, LINE_GROWTH * elapsed)
