"""Times that can be compared: the calls take turns, so that a slow spell of the machine meets them all."""

import time
from collections.abc import Callable, Mapping
from statistics import median


def take_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Returns the median seconds of each call over the rounds, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn > 0:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}
