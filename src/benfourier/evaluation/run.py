"""A plan from beginning to end: prepare, run what the ledger does not hold yet, and write every record at once."""

import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from benfourier import progress
from benfourier.detectors.method import FitData
from benfourier.errors import BenfourierError
from benfourier.evaluation.evaluation_data import EvaluationData
from benfourier.evaluation.network import check_files, new_classifier
from benfourier.evaluation.outcomes import inputs_record, run_task
from benfourier.evaluation.plan import Plan
from benfourier.evaluation.prepare import attack_images, open_images, work_folder
from benfourier.evaluation.studies import STUDIES
from benfourier.evaluation.studies.study import run_jobs
from benfourier.evaluation.trials import Trial, trials, versions
from benfourier.executors import Executor, SavedFolder, Serial, TaskFailure
from benfourier.models.device import check_device
from benfourier.store.artifact import digest_of
from benfourier.store.cache import Cache, open_cache
from benfourier.store.ledger import LedgerWriter, records
from benfourier.store.records import Failure, Inputs, Outcome, Run, Scores, encode
from benfourier.store.vocabulary import Role


@dataclass(frozen=True)
class Summary:
    """What a run added to its ledger."""

    ledger: Path
    trials: int  # in the plan
    run: int  # of them, in this run
    outcomes: int  # that were added to the ledger
    records: int  # of other kinds that were added, scores and inputs not counted
    failures: tuple[Failure, ...]  # what could not be done


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A plan that was run."""

    data: EvaluationData  # what its trials worked on
    outcomes: tuple[Outcome, ...]  # of its trials, those of earlier runs too
    summary: Summary  # what this run added


@dataclass(frozen=True)
class DryRun:
    """What a run of a plan would do."""

    trials: tuple[Trial, ...]  # of the plan
    outcomes: int  # in the ledger now
    left_behind: int  # of them, those that the plan would not use again


def dry_run(plan: Plan, ledger: str | PathLike[str], *, only: str | None = None) -> DryRun:
    """Returns what a run would do, after the plan's files and its network were opened; nothing is computed.

    An outcome is used again if the plan asks its question, and if neither its detector, nor its attacks, nor those
    that share their noise level have changed since the ledger's last run. Arguments are those of `evaluate`.
    """
    check_files(plan)
    new_classifier(plan)  # raises if the network cannot be made as the plan says
    written, settings = list(records(ledger)), encode(plan.settings())
    runs = [record for record in written if isinstance(record, Run)]
    outcomes = {record.identity: record for record in written if isinstance(record, Outcome)} if runs else {}
    questions = {
        (trial.protocol.value, trial.detector, trial.fitted, tuple(target.attack for target in trial.targets))
        for trial in trials(plan, plan.source, "")
    }
    same = sum(
        (outcome.protocol, outcome.detector, outcome.fitted, tuple(cell.attack for cell in outcome.cells)) in questions
        and _basis(runs[-1].settings, outcome) == _basis(settings, outcome)
        for outcome in outcomes.values()
    )
    planned = trials(plan, plan.source, " + ".join(plan.other), only)
    return DryRun(planned, len(outcomes), len(outcomes) - same)


def evaluate(
    plan: Plan,
    ledger: str | PathLike[str],
    *,
    executor: Executor | None = None,
    only: str | None = None,
    cache: bool | str | PathLike[str] = True,
    device: str | torch.device | None = None,
    show_progress: bool | None = None,
) -> Evaluation:
    """Runs a plan; every record is in the ledger as soon as it is known, and is not made again.

    Args:
        plan: what is asked for.
        ledger: file to append to.
        executor: where attacks and trials run; by default in this process, one after the other.
        only: one protocol instead of all; studies are left out then.
        cache: where networks, examples and features are stored: a folder, True for the default one, False for none.
        device: where networks run, such as "cuda"; None leaves them where they are made, usually on the CPU.
        show_progress: True or False to force the bars; None draws them on a terminal.
    """
    if device is not None:
        check_device(device)
    check_files(plan)
    executor, store = executor or Serial(), open_cache(cache)
    with _one_thread(), LedgerWriter(ledger) as writer, work_folder(store) as folder:
        # without a cache, processes hand attacked images on through a folder that is gone afterwards
        images = open_images(plan, store or Cache(folder), show_progress, device)
        settings = encode(plan.settings())
        key, date = digest_of([json.dumps(settings, sort_keys=True)]), datetime.now(UTC).isoformat(timespec="seconds")
        writer.add(
            Run(
                key,
                plan.name,
                settings,
                plan.scale,
                versions(),
                machine(images.classifier.device),
                images.network_facts,
                date,
            )
        )
        data = attack_images(images, executor, writer.add, show_progress)
        writer.add(inputs_record(data))
        planned = {trial: trial.key(data) for trial in trials(plan, data.source, data.other, only)}
        missing = {trial: key for trial, key in planned.items() if key not in writer.keys}
        _run_trials(data, missing, executor, writer, show_progress)
        if only is None:
            _run_studies(data, writer, show_progress)
    added, keys = writer.added, set(planned.values())
    summary = Summary(
        ledger=writer.path,
        trials=len(planned),
        run=len(missing),
        outcomes=sum(isinstance(record, Outcome) for record in added),
        records=sum(not isinstance(record, Outcome | Scores | Inputs | Failure) for record in added),
        failures=tuple(record for record in added if isinstance(record, Failure)),
    )
    outcomes = {record.key: record for record in records(ledger) if isinstance(record, Outcome) and record.key in keys}
    return Evaluation(replace(data, cache=store), tuple(outcomes.values()), summary)


def _run_trials(
    data: EvaluationData, missing: Mapping[Trial, str], executor: Executor, writer: LedgerWriter, show: bool | None
) -> None:
    """Appends the outcomes of trials, or why they failed."""
    for entry in (data.plan.detector(label) for label in dict.fromkeys(trial.detector for trial in missing)):
        # what all fits of a detector share is made once, before processes would do so side by side
        clean = data.extra_clean if entry.takes_clean else None
        entry.method.prepare(data.classifier, FitData(data.example_sets[data.source][0], clean, data.work_dir, show))
    waiting = [tuple(group) for _, group in groupby(missing, key=lambda trial: trial.fit)]
    load = partial(EvaluationData.load, plan=data.plan, cache=data.cache, device=data.classifier.device)
    with work_folder(data.cache) as folder, progress.bar(len(missing), "trials", show=show) as advance:
        for task, result in executor.run(run_task, SavedFolder(data, folder, load), waiting):
            if isinstance(result, TaskFailure):
                for trial in task:
                    writer.add(Failure(missing[trial], str(trial), result.error))
            else:
                for record in result:
                    writer.add(record)
            advance(len(task), f"{task[0].detector} fitted to {', '.join(task[0].fitted)}")


def _run_studies(data: EvaluationData, writer: LedgerWriter, show: bool | None) -> None:
    """Appends the records of all studies; one that fails is a failure, and the others go on."""
    pictures = writer.path.with_name(f"{writer.path.stem}-pictures")
    for name in data.plan.studies:
        title, jobs = STUDIES[name]
        try:
            for record in run_jobs(jobs(data, pictures), title, known=writer.keys, show_progress=show):
                writer.add(record)
        except BenfourierError as error:
            key = digest_of(("study", name, data.plan.name))
            writer.add(Failure(key, f"study {name}", f"{type(error).__name__}: {error}"))


def machine(device: torch.device) -> dict[str, str | int]:
    """Returns the processor, its cores and threads, and the GPU if one is used; nothing that names the machine."""
    cpus = Path("/proc/cpuinfo")  # of Linux
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "system": platform.system(),
        "processor": names[0] if names else platform.machine(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        **({} if device.type == "cpu" else {"device": str(device)}),
    }


@contextmanager
def _one_thread() -> Iterator[None]:
    """Lets torch compute in the block as the processes of a pool do.

    Sums are split among threads, so that the last bits of results depend on their number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _basis(settings: Mapping[str, Any], outcome: Outcome) -> str:
    """The settings that an outcome depends on, as text; an added boundary attack moves the noise of its group."""
    shared = ("network", "seed", "source", "other", "groups", "sources", "calibration", "other_sources", "chunk")
    attacks = {entry["label"]: entry for entry in settings["attacks"]}
    used = [attacks.get(label) for label in (*outcome.fitted, *(cell.attack for cell in outcome.cells))]

    def group(attack: Mapping[str, Any]) -> tuple[int, str]:
        return attack["sources"], attack["label"] if attack["own_noise"] else ""

    near = [entry for entry in attacks.values() if entry["role"] == Role.BOUNDARY]
    groups = [[entry for entry in near if group(entry) == group(attack)] for attack in used if attack is not None]
    detectors = [entry for entry in settings["detectors"] if entry["label"] == outcome.detector]
    skip = list(settings.get("skip", ()))  # ledgers before this key have none
    return json.dumps([[settings.get(name) for name in shared], skip, used, groups, detectors], sort_keys=True)
