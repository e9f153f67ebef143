"""Executors: every task has an answer, whatever becomes of the process."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path

import pytest

from benfourier.errors import OptionError
from benfourier.evaluation.executors import Broken, Executor, InProcess, ProcessPool


def square(number: int) -> int:
    """Fails on 3, dies on 13."""
    if number == 3:
        raise ValueError("no threes")
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def threads(_: int) -> tuple[int, str | None]:
    import torch

    return torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")


def tick(told: str) -> None:
    """Writes into a file for as long as the process lives."""
    with Path(told).open("a", encoding="utf-8") as file:
        while True:
            file.write(".")
            file.flush()
            time.sleep(0.02)


@pytest.mark.parametrize("executor", [InProcess(), ProcessPool(2)])
def test_a_task_that_fails_does_not_stop_the_others(executor: Executor) -> None:
    found = dict(executor.run([1, 2, 3, 4], square))
    assert found == {1: 1, 2: 4, 3: Broken("ValueError: no threes"), 4: 16}


def test_a_process_that_dies_loses_its_task_only() -> None:
    found = dict(ProcessPool(2).run([13, 1, 2, 4], square))
    assert found == {13: Broken("the process that ran it ended with code -9"), 1: 1, 2: 4, 4: 16}
    assert active_children() == []


def test_processes_have_one_thread_and_end_when_nobody_listens() -> None:
    run = ProcessPool(1).run([0, 1], threads)
    assert next(run) == (0, (1, "1"))
    assert len(active_children()) == 1
    run.close()  # type: ignore[attr-defined]
    assert active_children() == []


def test_a_process_does_not_outlive_its_killed_parent(tmp_path: Path) -> None:
    ticks, file = tmp_path / "ticks", tmp_path / "parent.py"
    ticks.touch()
    file.write_text(
        "from benfourier.evaluation.executors import ProcessPool\n"
        "from tests.evaluation.test_executors import tick\n"
        f"if __name__ == '__main__': list(ProcessPool(1).run([{str(ticks)!r}], tick))\n",
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


def test_no_process_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match=r"workers is 0; it must be a whole number of at least 1"):
        ProcessPool(0)


def _soon(happened: Callable[[], bool]) -> bool:
    """Waits until something has happened, for two minutes at most."""
    until = time.monotonic() + 120
    while not happened() and time.monotonic() < until:
        time.sleep(0.05)
    return happened()
