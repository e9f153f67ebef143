"""Milliseconds per image that detectors cost, measured in turns, so that a slow spell of the machine meets them all."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from statistics import median

import torch
from torch import Tensor

from benfourier import progress
from benfourier.data.draws import names_by_content
from benfourier.detectors.detector import Detector, numbers_of
from benfourier.detectors.listening import listen
from benfourier.detectors.method import NEEDS, check_positive
from benfourier.errors import InputError, check_whole
from benfourier.evaluation.parts import digest_of_network
from benfourier.store.digest import digest_of
from benfourier.store.records import Cost
from benfourier.subjects.subject import Subject

VERSION = 3  # of what is measured; raise it with every change
FIRST = 2  # images of the first run; it is doubled while there is time


@dataclass(frozen=True)
class _Limits:
    batch: int
    rounds: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Task:
    """Something to be timed: the call, how many images it is about, and in how many rounds it takes part."""

    call: Callable[[int], object]
    images: int
    rounds: int


def cost_study(
    subject: Subject,
    detectors: Mapping[str, Detector],
    images: Tensor,
    *,
    batch: int = 32,
    rounds: int = 7,
    seconds: float = 20.0,
    known: Collection[str] = (),
    show_progress: bool | None = None,
) -> Iterator[Cost]:
    """Yields one record per detector: medians over the rounds.

    Args:
        subject: the classifier.
        detectors: by label, fitted to this subject.
        images: float tensor (N, C, H, W) in bounds; dear detectors get the first few of them.
        batch: images at once.
        rounds: in which all are timed, one after the other; dear detectors take part in fewer.
        seconds: that one detector may take in all rounds, beside its first runs; one round is made in any case.
        known: keys of records that are there already; they are not made again.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    check_whole("batch", batch)
    check_whole("rounds", rounds)
    check_positive("seconds", seconds)
    subject.check(images)
    network = digest_of_network(subject)
    strangers = [label for label, detector in detectors.items() if detector.subject is not subject]
    if strangers:
        raise InputError(f"detector {strangers[0]!r} was fitted to another subject; give those of this one")
    limits = _Limits(batch, rounds, seconds)
    options = repr((limits, tuple(images.shape)))
    keyed = {
        digest_of((network, f"cost {VERSION}", options, label, repr(detector.method))): label
        for label, detector in detectors.items()
    }
    wanted = {key: label for key, label in keyed.items() if key not in known}
    if not wanted:
        return
    names = names_by_content(images)
    tasks = {"": _task(lambda few: _forward(subject, images[:few], batch), len(images), limits)}
    with progress.bar(len(wanted) + rounds, "costs", show=show_progress) as advance, torch.no_grad():
        for label in wanted.values():
            advance(0, label)
            tasks |= _tasks(label, detectors[label], images, names, limits)
            advance(1)
        ms = take_turns(tasks, rounds, lambda: advance(1, "rounds"))
    for key, label in wanted.items():
        detector = detectors[label]
        needs = tuple(need for need in NEEDS if need in detector.needs)
        numbers, final = tasks[f"numbers {label}"], f"final {label}"
        yield Cost(key, label, detector.method.name, needs, numbers.images, ms[""], ms[f"numbers {label}"], ms[final])


def _tasks(label: str, detector: Detector, images: Tensor, names: list[str], limits: _Limits) -> dict[str, Task]:
    """The two things to be timed of a detector: its numbers, and its final classifier on one batch of them."""

    def numbers(few: int) -> Tensor:
        seen, size = images[:few], limits.batch
        (found,) = numbers_of(detector.subject, [detector.measure], seen, names[:few], batch=size, show_progress=False)
        return found

    first = numbers(min(FIRST, len(images)))
    rows = first.repeat(-(-limits.batch // len(first)), 1)[: limits.batch]
    final = _task(lambda few: detector.classifier.score(rows[:few]), len(rows), limits)
    return {f"numbers {label}": _task(numbers, len(images), limits), f"final {label}": final}


def _task(call: Callable[[int], object], images: int, limits: _Limits) -> Task:
    """A call with as much as fits the time: first one whole batch, then the rounds, then all the images."""
    count = min(FIRST, images)
    call(count)
    taken = _timed(call, count)
    while count < min(limits.batch, images) and taken <= limits.seconds / 2:
        count = min(2 * count, limits.batch, images)
        taken = _timed(call, count)
    each = taken / count
    count = max(count, min(images, int(limits.seconds / (limits.rounds * each))))
    return Task(call, count, max(1, min(limits.rounds, int(limits.seconds / (count * each)))))


def _timed(call: Callable[[int], object], count: int) -> float:
    start = time.perf_counter()
    call(count)
    return max(time.perf_counter() - start, 1e-9)


def take_turns(tasks: Mapping[str, Task], rounds: int, after: Callable[[], None]) -> dict[str, float]:
    """Milliseconds per image of each task, the median over its rounds; cheap ones have one more that is not counted.

    Every round has an order of its own, so that none always runs right after a dear one.
    """
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    order = list(tasks)
    for turn in range(-1, rounds):
        Random(turn).shuffle(order)  # noqa: S311  which order it is does not matter
        for name in order:
            task = tasks[name]
            if turn < task.rounds and (turn >= 0 or task.rounds == rounds):
                spent = _timed(task.call, task.images)
                if turn >= 0:
                    taken[name].append(1000 * spent / task.images)
        if turn >= 0:
            after()
    return {name: median(times) for name, times in taken.items()}


def _forward(subject: Subject, images: Tensor, batch: int) -> None:
    """The network alone, run as it is when detectors listen to it."""
    with torch.no_grad():
        for part in torch.split(images, batch):
            listen(subject, part, [], [])
