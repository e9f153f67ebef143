"""Where tasks run: in this process, or in several. Another place to run them is another class with the same `run`."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import Any, Generic, Protocol, TypeVar, cast

from benfourier.errors import check_whole

Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")
Loaded = TypeVar("Loaded", covariant=True)
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class TaskFailure:
    """Why a task has no result."""

    error: str


class Shared(Protocol[Loaded]):
    """What all tasks work on. It can be pickled, and `load` is called once in every process."""

    def load(self) -> Loaded:
        """Returns the value itself."""


class Executor(Protocol):
    """Runs tasks that do not depend on each other."""

    def run(
        self, function: Callable[[Value, Task], Result], shared: Shared[Value], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result | TaskFailure]]:
        """Yields each task with its result, or why it has none, as they are done; the function can be pickled."""


@dataclass
class SavedFolder(Generic[Value]):
    """A value that other processes load from a folder; its files are written when the handle is first pickled."""

    value: Any  # for tasks in this process; its `save` writes it to a folder
    folder: Path  # that other processes can read
    from_folder: Callable[[Path], Value]
    is_written: bool = False

    def load(self) -> Value:
        """Returns the value."""
        value: Value = self.from_folder(self.folder) if self.value is None else self.value
        return value

    def __getstate__(self) -> dict[str, Any]:
        if not self.is_written:
            self.value.save(self.folder)
            self.is_written = True
        return {**self.__dict__, "value": None}


@dataclass(frozen=True)
class Serial:
    """One task after the other, in this process."""

    def run(
        self, function: Callable[[Value, Task], Result], shared: Shared[Value], tasks: Iterable[Task]
    ) -> Iterator[tuple[Task, Result | TaskFailure]]:
        """Yields each task with its result, in order; what is shared is loaded with the first task."""
        loaded: list[Value] = []
        for task in tasks:
            result: Result | TaskFailure
            try:
                loaded = loaded or [shared.load()]
                result = function(loaded[0], task)
            except Exception as error:  # a task may fail in any way; the others go on
                result = TaskFailure(f"{type(error).__name__}: {error}")
            yield task, result


@dataclass(frozen=True)
class LocalPool:
    """Several processes with one thread each; one that dies loses its task, and another takes its place."""

    workers: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        check_whole("workers", self.workers)

    def run(
        self, function: Callable[[Value, Task], Result], shared: Shared[Value], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result | TaskFailure]]:
        """Yields each task with its result, as they are done; leaving the loop early ends all processes."""
        waiting, busy = list(reversed(tasks)), dict[Connection, tuple[SpawnProcess, Task]]()
        try:
            while waiting or busy:
                while waiting and len(busy) < self.workers:
                    connection, process = _start(function, shared)
                    busy[connection] = process, waiting.pop()
                    _send(connection, busy[connection][1])
                for connection in cast("list[Connection]", wait(list(busy))):
                    process, task = busy[connection]
                    try:
                        result = connection.recv()
                    except (EOFError, OSError):
                        process.join()
                        result = TaskFailure(f"the process that ran it ended with code {process.exitcode}")
                    if waiting and process.is_alive():
                        busy[connection] = process, waiting.pop()
                        _send(connection, busy[connection][1])
                    else:
                        del busy[connection]
                        _end(connection, process)
                    yield task, result
        finally:
            for connection, (process, _) in busy.items():
                _end(connection, process)


def _start(function: Callable[..., object], shared: Shared[object]) -> tuple[Connection, SpawnProcess]:
    """A process with one thread that runs the tasks sent to it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # libraries read these when the process loads them
    try:
        process.start()
    finally:
        for name in ONE_THREAD:
            del os.environ[name]
        os.environ.update(before)
    theirs.close()
    # not as arguments: reading them imports whole libraries, and by then the process must watch its parent
    _send(ours, (function, shared))
    return ours, process


def _send(connection: Connection, message: object) -> None:
    with suppress(OSError):  # the process has died; receiving the result says so
        connection.send(message)


def _end(connection: Connection, process: SpawnProcess) -> None:
    connection.close()
    process.terminate()
    process.join()


def _work(connection: Connection) -> None:
    """Runs tasks until the connection closes. Only the parent handles Ctrl-C; if it is killed, this process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    function, shared = connection.recv()
    for _, result in Serial().run(function, shared, _receive(connection)):
        connection.send(result)


def _receive(connection: Connection) -> Iterator[object]:
    with suppress(EOFError, OSError):  # the connection closed
        while True:
            yield connection.recv()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # in the middle of a task too: nobody is left to read its result
