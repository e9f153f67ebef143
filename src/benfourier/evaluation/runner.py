"""A plan from beginning to end: prepare, run what the ledger does not hold yet, and keep every outcome at once."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

from benfourier import progress
from benfourier.detectors.defense_gan import DefenseGAN
from benfourier.detectors.method import Lessons
from benfourier.errors import BenfourierError
from benfourier.evaluation.bench import Bench
from benfourier.evaluation.executors import Broken, Executor, InProcess
from benfourier.evaluation.outcomes import method_of
from benfourier.evaluation.plan import Plan
from benfourier.evaluation.plan_reading import check_opens
from benfourier.evaluation.precrafting import precraft
from benfourier.evaluation.preparing import Ground, prepare, survey
from benfourier.evaluation.protocols import trials_of
from benfourier.evaluation.studying import study
from benfourier.evaluation.threads import one_thread
from benfourier.evaluation.trials import Trial, key_of
from benfourier.evaluation.versions import machine, versions
from benfourier.evaluation.work import Elsewhere, Here
from benfourier.store.cache import OLD, Cache, open_cache
from benfourier.store.coding import plain
from benfourier.store.digest import digest_of
from benfourier.store.ledger import Ledger
from benfourier.store.records import Failure, Outcome, Record, Run

PREFIX = "bench-"
Do = Callable[[Trial], tuple[Outcome, ...]]


@dataclass(frozen=True)
class Summary:
    """What a run came to.

    Args:
        ledger: its file.
        trials: in the plan.
        run: of them, in this run.
        outcomes: that were added to the ledger.
        records: of other kinds that were added.
        failures: what could not be done.
    """

    ledger: Path
    trials: int
    run: int
    outcomes: int
    records: int
    failures: tuple[Failure, ...]


class Keeper:
    """A ledger with the keys that it holds.

    Args:
        path: of the ledger.
    """

    def __init__(self, path: Path) -> None:
        self.ledger = Ledger(path)
        self.known = {record.key for record in self.ledger.records() if not isinstance(record, Failure)}
        self.added: list[Record] = []

    def add(self, record: Record) -> None:
        """Appends a record unless its key is there; runs and failures are told every time."""
        if isinstance(record, Run | Failure) or record.key not in self.known:
            self.ledger.append(record)
            self.added.append(record)
        if not isinstance(record, Failure):
            self.known.add(record.key)


def evaluate(
    plan: Plan,
    ledger: str | PathLike[str],
    *,
    executor: Executor | None = None,
    only: str | None = None,
    cache: bool | str | PathLike[str] = True,
    show_progress: bool | None = None,
) -> Summary:
    """Returns what a plan came to; every record is in the ledger as soon as it is known, and is not made again.

    Args:
        plan: what is asked for.
        ledger: file to append to.
        executor: where trials run; by default in this process.
        only: one protocol instead of all; studies are left out then.
        cache: where networks, examples and numbers are kept: a folder, True for the default one, False for nowhere.
        show_progress: True or False to force the bars; None draws them on a terminal.
    """
    check_opens(plan)
    keeper, kept = Keeper(Path(ledger)), open_cache(cache)
    ground = survey(plan, kept, show_progress)
    keeper.add(_run(plan, ground))
    bench = _bench(plan, ground, keeper, kept, executor, show_progress)
    trials = trials_of(plan, bench.source, bench.other, only)
    wanted = [trial for trial in trials if _missing(bench, plan, trial, keeper)]
    _warm(bench, plan, wanted, kept, show_progress)
    with (
        _work(bench, plan, kept, executor or InProcess()) as (place, do),
        progress.bar(len(wanted), "trials", show=show_progress) as advance,
    ):
        for trial, result in place.run(wanted, do):
            _keep(bench, plan, trial, result, keeper)
            advance(1, str(trial))
    if only is None:
        for name in plan.studies:
            _study(name, bench, plan, keeper, kept, show_progress, apart=_apart(executor))
    added = keeper.added
    return Summary(
        ledger=keeper.ledger.path,
        trials=len(trials),
        run=len(wanted),
        outcomes=sum(isinstance(record, Outcome) for record in added),
        records=sum(not isinstance(record, Outcome | Failure) for record in added),
        failures=tuple(record for record in added if isinstance(record, Failure)),
    )


def _bench(
    plan: Plan, ground: Ground, keeper: Keeper, cache: Cache | None, executor: Executor | None, show: bool | None
) -> Bench:
    """What trials work on; attacks are made where trials will run, if these places share a cache."""
    if cache is None or executor is None or not _apart(executor):
        return prepare(plan, ground, keeper.add, cache, show)
    precraft(plan, ground, executor, cache, show)
    with one_thread():
        return prepare(plan, ground, keeper.add, cache, show)


def _run(plan: Plan, ground: Ground) -> Run:
    settings = plain(plan.settings())
    return Run(
        key=digest_of([json.dumps(settings, sort_keys=True)]),
        name=plan.name,
        settings=settings,
        scale=plan.scale,
        versions=versions(),
        machine=machine(),
        network=ground.facts(plan),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _missing(bench: Bench, plan: Plan, trial: Trial, keeper: Keeper) -> bool:
    return any(key_of(bench, plan, trial, ask) not in keeper.known for ask in trial.asks)


def _warm(bench: Bench, plan: Plan, wanted: list[Trial], cache: Cache | None, show: bool | None) -> None:
    """Trains generators that all fits of a detector share, once, before processes would do so side by side."""
    for label in dict.fromkeys(trial.detector for trial in wanted):
        method = method_of(bench, plan.detector(label), cache)
        if isinstance(method, DefenseGAN) and method.checkpoint is not None and bench.beyond is not None:
            method.learn(bench.subject, Lessons(bench.groups[bench.source][0], bench.beyond, show))


@contextmanager
def _work(bench: Bench, plan: Plan, cache: Cache | None, executor: Executor) -> Iterator[tuple[Executor, Do]]:
    """The executor and what it calls; other processes find the bench in a folder that is gone afterwards."""
    if isinstance(executor, InProcess):
        yield executor, Here(bench, plan, cache)
        return
    home = None if cache is None else cache.folder  # where other machines can see it too, if they share the cache
    for left in [] if home is None else home.glob(f"{PREFIX}*"):
        if time.time() - left.stat().st_mtime > OLD:  # of a run that was killed
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=PREFIX, dir=home) as folder:
        bench.save(Path(folder))
        yield executor, Elsewhere(Path(folder), plan, cache)


def _keep(bench: Bench, plan: Plan, trial: Trial, result: tuple[Outcome, ...] | Broken, keeper: Keeper) -> None:
    if not isinstance(result, Broken):
        for outcome in result:
            keeper.add(outcome)
        return
    for ask in trial.asks:
        key = key_of(bench, plan, trial, ask)
        if key not in keeper.known:
            keeper.add(Failure(key, f"{trial}, {ask.protocol}", result.error))


def _apart(executor: Executor | None) -> bool:
    """True if trials run in other processes."""
    return executor is not None and not isinstance(executor, InProcess)


def _study(
    name: str, bench: Bench, plan: Plan, keeper: Keeper, cache: Cache | None, show: bool | None, *, apart: bool
) -> None:
    """Appends the records of one study; one that fails is told as a failure."""
    known = frozenset(keeper.known)
    try:
        for record in study(name, bench, plan, keeper.ledger.path, known, cache, show, apart=apart):
            keeper.add(record)
    except BenfourierError as error:
        keeper.add(Failure(digest_of(("study", name, plan.name)), f"study {name}", f"{type(error).__name__}: {error}"))
