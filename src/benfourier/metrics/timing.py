"""Times that can be compared: calls take turns, so that a slow spell of the machine meets them all."""

import time
from collections.abc import Callable, Mapping
from random import Random
from statistics import median
from typing import Any

from benfourier import progress


def seconds_of(call: Callable[[], object]) -> float:
    """Returns how long a call takes, never 0."""
    start = time.perf_counter()
    call()
    return max(time.perf_counter() - start, 1e-9)


def seconds_in_turns(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    rounds_of: Mapping[str, int] | None = None,
    show_progress: bool | None = False,
) -> dict[str, list[float]]:
    """Returns the seconds of each call in each of its rounds, after one round that is not counted.

    Every round has an order of its own, so that no call always runs right after an expensive one. `rounds_of` has fewer
    rounds for some calls; they are too expensive for the round that is not counted.
    """
    limits = {name: min(rounds, (rounds_of or {}).get(name, rounds)) for name in calls}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    with progress.bar(rounds + 1, "rounds", show=show_progress) as advance:
        for turn in range(-1, rounds):
            Random(turn).shuffle(order)  # noqa: S311  which order it is does not matter
            for name in order:
                if turn < limits[name] and (turn >= 0 or limits[name] == rounds):
                    seconds[name].append(seconds_of(calls[name]))
            advance(1)
    return {name: times[-limits[name] :] for name, times in seconds.items()}  # without the first round


def median_seconds(calls: Mapping[str, Callable[[], object]], rounds: int, **options: Any) -> dict[str, float]:
    """Returns the median seconds of each call; options are those of `seconds_in_turns`."""
    return {name: median(times) for name, times in seconds_in_turns(calls, rounds, **options).items()}
