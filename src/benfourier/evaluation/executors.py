"""Where trials run: in this process, or in several. Another place to run them is another class with the same `run`."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from threading import Thread
from typing import Generic, Protocol, TypeVar

from benfourier.errors import check_whole

Task = TypeVar("Task")
Result = TypeVar("Result")
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Broken:
    """Why a task came to nothing."""

    error: str


class Executor(Protocol):
    """Runs tasks that do not depend on each other."""

    def run(self, tasks: Sequence[Task], do: Callable[[Task], Result]) -> Iterator[tuple[Task, Result | Broken]]:
        """Yields each task with what came of it, as they are done.

        Args:
            tasks: what is to be done; each can be pickled.
            do: does one of them, in whatever process; it can be pickled.
        """


@dataclass(frozen=True)
class InProcess:
    """One task after the other, in this process."""

    def run(self, tasks: Sequence[Task], do: Callable[[Task], Result]) -> Iterator[tuple[Task, Result | Broken]]:
        """Yields each task with what came of it, in order."""
        for task in tasks:
            yield task, attempt(do, task)


@dataclass(frozen=True)
class ProcessPool:
    """Several processes with one thread each; one that dies loses its task, and another takes its place.

    Args:
        workers: how many.
    """

    workers: int

    def __post_init__(self) -> None:
        check_whole("workers", self.workers)

    def run(self, tasks: Sequence[Task], do: Callable[[Task], Result]) -> Iterator[tuple[Task, Result | Broken]]:
        """Yields each task with what came of it, as they are done; leaving the loop early ends all processes."""
        waiting = list(reversed(tasks))
        at_work: dict[Connection, _Worker[Task]] = {}
        try:
            while waiting or at_work:
                while waiting and len(at_work) < self.workers:
                    worker: _Worker[Task] = _Worker.start(do)
                    at_work[worker.line] = worker
                    worker.give(waiting.pop())
                for line in wait(list(at_work)):
                    assert isinstance(line, Connection)
                    worker = at_work[line]
                    task, result = worker.answer()
                    if isinstance(result, _Gone):
                        del at_work[line]
                        worker.end()
                        yield task, Broken(f"the process that ran it ended with code {worker.process.exitcode}")
                        continue
                    if waiting:
                        worker.give(waiting.pop())
                    else:
                        del at_work[line]
                        worker.end()
                    yield task, result
        finally:
            for worker in at_work.values():
                worker.end()


def attempt(do: Callable[[Task], Result], task: Task) -> Result | Broken:
    """Returns what comes of a task; whatever it raises is told."""
    try:
        return do(task)
    except Exception as error:  # a task may fail in any way; the others go on
        return Broken(f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class _Gone:
    """What a process says that has died."""


@dataclass
class _Worker(Generic[Task]):
    process: SpawnProcess
    line: Connection
    tasks: list[Task]

    @classmethod
    def start(cls, do: Callable[[Task], Result]) -> "_Worker[Task]":
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        with _one_thread():
            process = context.Process(target=_work, args=(theirs, do), daemon=True)
            process.start()
        theirs.close()
        return cls(process, ours, [])

    def give(self, task: Task) -> None:
        self.tasks.append(task)
        try:
            self.line.send(task)
        except OSError:
            return  # it has died; its answer says so

    def answer(self) -> "tuple[Task, Result | Broken | _Gone]":
        try:
            return self.tasks[-1], self.line.recv()
        except (EOFError, OSError):
            self.process.join()
            return self.tasks[-1], _Gone()

    def end(self) -> None:
        self.line.close()
        self.process.terminate()
        self.process.join()


def _work(line: Connection, do: Callable[[Task], Result]) -> None:
    """Does tasks until nobody asks any more. The parent alone hears Ctrl-C; if it is killed, this process ends too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_outlive_nobody, daemon=True).start()
    while True:
        try:
            task: Task = line.recv()
        except (EOFError, OSError):
            return
        line.send(attempt(do, task))


def _outlive_nobody() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # amid a task too: nobody is left to take its result


@contextmanager
def _one_thread() -> Iterator[None]:
    """Lets processes that start in the block have one thread each."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
