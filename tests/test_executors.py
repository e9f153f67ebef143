"""Executors: every task has an answer, whatever becomes of the process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import active_children
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from benfourier.errors import OptionError
from benfourier.executors import Executor, LocalPool, SavedFolder, Serial, TaskFailure

EXECUTORS = [Serial(), LocalPool(2)]
T = TypeVar("T")


@dataclass(frozen=True)
class InMemory(Generic[T]):
    """A value that is shared by pickling it."""

    value: T

    def load(self) -> T:
        return self.value


def times(factor: int, number: int) -> int:
    """Fails on 3, dies on 13."""
    if number == 3:
        raise ValueError("no threes")
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return factor * number


def threads(_: None, __: int) -> tuple[int, str | None]:
    import torch

    return torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")


def tick(_: None, name: str) -> None:
    """Writes into a file for as long as the process lives."""
    with Path(name).open("a", encoding="utf-8") as file:
        while True:
            file.write(".")
            file.flush()
            time.sleep(0.02)


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_a_task_that_fails_does_not_stop_the_others(executor: Executor) -> None:
    results = dict(executor.run(times, InMemory(10), [1, 2, 3, 4]))
    assert results == {1: 10, 2: 20, 3: TaskFailure("ValueError: no threes"), 4: 40}


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_without_tasks_nothing_is_loaded(executor: Executor) -> None:
    assert list(executor.run(times, Unloadable(), [])) == []


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_what_cannot_be_loaded_is_the_failure_of_every_task(executor: Executor) -> None:
    results = dict(executor.run(times, Unloadable(), [1, 2]))
    assert results == dict.fromkeys([1, 2], TaskFailure("OSError: no such folder"))


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_what_is_shared_is_loaded_once_in_every_process(executor: Executor, tmp_path: Path) -> None:
    (tmp_path / "loads").touch()
    results = dict(executor.run(times, Logged(tmp_path / "loads"), [1, 2, 4, 5, 6]))
    assert results == {1: 2, 2: 4, 4: 8, 5: 10, 6: 12}
    assert len((tmp_path / "loads").read_text(encoding="utf-8")) == getattr(executor, "workers", 1)


@pytest.mark.parametrize("executor", EXECUTORS, ids=repr)
def test_a_saved_value_is_written_for_other_processes_only(executor: Executor, tmp_path: Path) -> None:
    results = dict(executor.run(saved_times, SavedFolder(Number(7), tmp_path, load_number), [1, 2]))
    assert results == {1: 7, 2: 14}
    assert (tmp_path / "number").exists() == isinstance(executor, LocalPool)


class Unloadable:
    def load(self) -> int:
        raise OSError("no such folder")


@dataclass(frozen=True)
class Logged:
    """Leaves a mark in a file for each time that it is loaded."""

    path: Path

    def load(self) -> int:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(".")
        return 2


@dataclass(frozen=True)
class Number:
    value: int

    def save(self, folder: Path) -> None:
        (folder / "number").write_text(str(self.value), encoding="utf-8")


def load_number(folder: Path) -> Number:
    return Number(int((folder / "number").read_text(encoding="utf-8")))


def saved_times(number: Number, task: int) -> int:
    return number.value * task


def test_a_process_that_dies_loses_its_task_only() -> None:
    results = dict(LocalPool(2).run(times, InMemory(10), [13, 1, 2, 4]))
    assert results == {13: TaskFailure("the process that ran it ended with code -9"), 1: 10, 2: 20, 4: 40}
    assert active_children() == []


def test_processes_have_one_thread_and_end_when_the_run_is_closed() -> None:
    run = LocalPool(1).run(threads, InMemory(None), [0, 1])
    assert next(run) == (0, (1, "1"))
    assert len(active_children()) == 1
    run.close()  # type: ignore[attr-defined]
    assert active_children() == []


@pytest.mark.parametrize("moment", ["in a task", "while it imports"])
def test_a_process_does_not_outlive_its_killed_parent(tmp_path: Path, moment: str) -> None:
    ticks, file = tmp_path / "ticks", tmp_path / "parent.py"
    ticks.touch()
    (tmp_path / "slow_module.py").write_text(
        "import multiprocessing\n"
        "from tests.test_executors import tick as work\n"
        f"if multiprocessing.parent_process(): work(None, {str(ticks)!r})\n"
        "def tick(value, task): return None\n",
        encoding="utf-8",
    )
    module = "tests.test_executors" if moment == "in a task" else "slow_module"
    file.write_text(
        "if __name__ == '__main__':\n"
        "    from benfourier.executors import LocalPool\n"
        "    from tests.test_executors import InMemory\n"
        f"    from {module} import tick\n"
        f"    list(LocalPool(1).run(tick, InMemory(None), [{str(ticks)!r}]))\n",
        encoding="utf-8",
    )
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(file)], env=here) as parent:  # noqa: S603
        begun = _soon(lambda: ticks.stat().st_size > 0)
        parent.kill()

    def is_still() -> bool:
        before = ticks.stat().st_size
        time.sleep(1)
        return ticks.stat().st_size == before

    assert begun
    assert _soon(is_still)


def test_by_default_there_is_one_process_per_core() -> None:
    assert LocalPool().workers == os.cpu_count()


def test_no_process_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match=r"workers is 0; it must be a whole number of at least 1"):
        LocalPool(0)


def _soon(happened: Callable[[], bool]) -> bool:
    """Waits until something has happened, for two minutes at most."""
    until = time.monotonic() + 120
    while not happened() and time.monotonic() < until:
        time.sleep(0.05)
    return happened()
