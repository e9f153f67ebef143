"""Executors: every task has an answer, whatever becomes of the process."""

import os
import signal
from multiprocessing import active_children

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


def test_no_process_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match=r"workers is 0; it must be a whole number of at least 1"):
        ProcessPool(0)
