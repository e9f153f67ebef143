"""What a process needs to run trials: the bench, opened once, and the numbers that trials share."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from benfourier.detectors.memo import Memo
from benfourier.evaluation.bench import Bench
from benfourier.evaluation.outcomes import memo_of, run_trial
from benfourier.evaluation.plan import Plan
from benfourier.evaluation.trials import Trial
from benfourier.store.cache import Cache
from benfourier.store.records import Outcome


@dataclass(frozen=True, eq=False)
class Here:
    """Runs trials in this process.

    Args:
        bench: what they work on.
        plan: what is asked for.
        cache: where numbers are kept.
    """

    bench: Bench
    plan: Plan
    cache: Cache | None
    _memo: list[Memo] = field(default_factory=list, init=False)

    def __call__(self, trial: Trial) -> tuple[Outcome, ...]:
        """Returns a trial's outcomes."""
        if not self._memo:
            self._memo.append(memo_of(self.bench, self.plan, self.cache))
        return run_trial(self.bench, self.plan, trial, self._memo[0], self.cache)


@dataclass(frozen=True)
class Elsewhere:
    """Runs trials in another process, which finds everything in a folder.

    Args:
        folder: that a bench was saved to.
        plan: what is asked for.
        cache: where numbers are kept.
    """

    folder: Path
    plan: Plan
    cache: Cache | None

    def __call__(self, trial: Trial) -> tuple[Outcome, ...]:
        """Returns a trial's outcomes."""
        return _opened(self)(trial)

    def __hash__(self) -> int:
        return hash(self.folder)


@cache
def _opened(work: Elsewhere) -> Here:
    return Here(Bench.load(work.folder, work.plan), work.plan, work.cache)
