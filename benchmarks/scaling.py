"""What a cluster brings: `python -m benchmarks.scaling [detect] [plan] [schedule]`, by default all three.

detect: 20 000 images through Ray Data and locally; scores, peak memory, images a second and core after the start.
plan: a small plan on one worker of Ray and on two. schedule: a plan at `--scale paper` on 1, 10 and 100 nodes, played
through with the cost per trial that a ledger holds. Results go to benchmarks/scaling.json, from which docs/cluster.md
is written by `python -m tools.docs`.
"""

import argparse
import heapq
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import benfourier as bf
from benchmarks.case import SCALING, Case, Environment, merge, save
from benchmarks.kills import PLAN
from benchmarks.service import noise_guard
from benchmarks.setup import NETWORKS
from benfourier.evaluation.trials import CROSS_VALIDATED, trials
from benfourier.executors import Executor, Serial, Shared, TaskFailure
from benfourier.store.ledger import read
from benfourier.store.records import AttackSummary, Cost, Outcome

IMAGES, CHUNK = 20_000, 500
NETWORK = "cifar-resnet20"
ROOT = Path(__file__).parents[1]
TOLERANCE = 1e-3  # of a score
FIT_SHARE = 0.8  # of the sources, that a fit takes
FOLDS = 5
NODES = (1, 10, 100)


def main() -> int:
    """Returns the exit code: 1 if a limit is broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("parts", nargs="*", help="detect, plan, schedule")
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--workers", type=int, default=2, help="of Ray")
    parser.add_argument("--plan", type=Path, default=ROOT / "experiments" / "cifar10.toml", help="for schedule")
    parser.add_argument("--ledger", type=Path, help="with its measured costs; by default the plan's own")
    parser.add_argument("--scale", default="paper")
    parser.add_argument("--cores", type=int, default=32, help="of a node, for schedule")
    parser.add_argument("--json", type=Path, default=SCALING, help="where to write the results")
    options = parser.parse_args()
    ledger = options.ledger or ROOT / "experiments" / "results" / f"{options.plan.stem}.jsonl"
    measures: dict[str, Callable[[], list[Case]]] = {
        "detect": partial(detect_cases, options.images, options.workers),
        "plan": plan_cases,
        "schedule": partial(schedule_cases, options.plan, ledger, options.scale, options.cores),
    }
    unknown = set(options.parts) - measures.keys()
    if unknown:
        parser.error(f"no part is called {min(unknown)!r}; there are {', '.join(measures)}")
    torch.set_num_threads(1)
    cases = [case for name, measure in measures.items() if name in (options.parts or measures) for case in measure()]
    for case in cases:
        print(case.row())
    environment = Environment.here(1, 1)
    save(options.json, environment, merge(options.json, environment, cases))
    return 0 if all(case.holds for case in cases) else 1


@dataclass
class Watched:
    """An executor whose tasks also say how much memory their process held at most; and when each was done."""

    executor: Executor
    times: list[float] = field(default_factory=list)
    peak: int = 0  # bytes, of the processes of the tasks

    def run(
        self, function: Callable[..., Any], shared: Shared[Any], tasks: Sequence[Any]
    ) -> Iterator[tuple[Any, Any | TaskFailure]]:
        """Yields each task with its result."""
        for task, result in self.executor.run(partial(_with_peak, function), shared, tasks):
            self.times.append(time.monotonic())
            if isinstance(result, TaskFailure):
                yield task, result
            else:
                self.peak = max(self.peak, result[1])
                yield task, result[0]

    def speed(self, images: int, cores: int) -> float:
        """Returns images a second and core between the first round of tasks and the last one."""
        rest = len(self.times) - cores
        return images / len(self.times) * rest / (self.times[-1] - self.times[cores - 1]) / cores


def _with_peak(function: Callable[..., Any], value: Any, task: Any) -> tuple[Any, int]:
    return function(value, task), peak_memory()


def peak_memory() -> int:
    """Returns the bytes that this process held at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def detect_cases(images: int, workers: int) -> list[Case]:
    """Measures verdicts on noise images of 32×32 pixels, locally and through Ray Data."""
    import ray

    guard = noise_guard(NETWORKS[NETWORK])
    with TemporaryDirectory() as folder:
        source = write_images(Path(folder, "images.parquet"), guard, images)
        local, cluster = Watched(Serial()), Watched(bf.RayDataExecutor())
        bf.detect(guard, source, Path(folder, "local"), executor=local, chunk=CHUNK)
        before = peak_memory()
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        bf.detect(guard, source, Path(folder, "ray"), executor=cluster, chunk=CHUNK)
        ray.shutdown()
        difference = largest_difference(Path(folder, "local"), Path(folder, "ray"))
    megabytes = {"driver_mb": peak_memory() / 1e6, "local_mb": before / 1e6, "worker_mb": cluster.peak / 1e6}
    speeds = {"local": local.speed(images, 1), "ray": cluster.speed(images, workers)}
    figures = {**speeds, **megabytes, "ratio": speeds["ray"] / speeds["local"], "difference": difference}
    words = f"{images} images of 32×32 through Ray Data with {workers} workers"
    return [
        Case("detect/speed", f"{words}: images a second and core, locally {{local}}, on Ray {{ray}}", figures, "ratio",
             "factor", 0.8, "at least"),
        Case("detect/scores", f"{words}: largest difference of a score {{difference}}, of 0.001 that are allowed",
             {**figures, "share": difference / TOLERANCE}, "share", "number", 1.0),
        Case("detect/memory", f"{words}: peak memory in MB, one local process {{local_mb}}, driver {{driver_mb}}, "
             "largest worker {worker_mb}", {**figures, "worker": cluster.peak / before}, "worker", "factor", 2.0),
    ]  # fmt: skip


def write_images(path: Path, guard: bf.Guard, count: int) -> Path:
    """Writes noise images as PNGs into a Parquet file."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    schema = pa.schema([("id", pa.string()), ("image", pa.binary())])
    with ParquetWriter(path, schema) as writer:
        for start in range(0, count, CHUNK):
            draw = torch.Generator().manual_seed(start)
            images = torch.rand((min(CHUNK, count - start), 3, 32, 32), generator=draw)
            content = [bf.encode_png(image, guard.classifier) for image in images]
            ids = [str(start + place) for place in range(len(content))]
            writer.write_table(pa.table({"id": ids, "image": content}, schema=schema))
    return path


def largest_difference(one: Path, other: Path) -> float:
    """Returns by how much the scores of an id differ at most; infinite if the ids do."""
    from pyarrow.parquet import read_table

    tables = [read_table(folder, columns=["id", "score"]).sort_by("id") for folder in (one, other)]
    ids, others = (table.column("id").to_pylist() for table in tables)
    scores = [table.column("score").to_numpy() for table in tables]
    return float(np.abs(scores[0] - scores[1]).max()) if ids == others else float("inf")


def plan_cases() -> list[Case]:
    """Measures a small plan on one worker of Ray and on two, each after the workers have started."""
    seconds = {workers: plan_seconds(workers) for workers in (1, 2)}
    figures = {"one": seconds[1], "two": seconds[2], "ratio": seconds[1] / seconds[2]}
    sentence = "a small plan on Ray: {one} s on one worker, {two} s on two"
    return [Case("plan/strong", sentence, figures, "ratio", "factor", 1.5, "at least")]


def plan_seconds(workers: int) -> float:
    """Returns how long attacks and trials of a plan take on so many workers, without its training."""
    import ray

    with TemporaryDirectory() as folder:
        path = Path(folder, "plan.toml")
        path.write_text(PLAN, encoding="utf-8")
        plan = bf.read_plan(path)
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        try:
            executor = Watched(bf.RayExecutor())
            list(executor.run(_square, Number(2), list(range(4 * workers))))  # starts the processes
            executor.times.clear()
            start = time.monotonic()
            bf.evaluate(plan, Path(folder, "l.jsonl"), executor=executor, cache=Path(folder, "cache"))
            return executor.times[-1] - start
        finally:
            ray.shutdown()


@dataclass(frozen=True)
class Number:
    """A number that is shared by pickling it."""

    value: int

    def load(self) -> int:
        """Returns it."""
        return self.value


def _square(value: int, _: int) -> int:
    time.sleep(0.5)  # so that every process gets a task
    return value**2


@dataclass(frozen=True)
class Job:
    """A task of a plan, and how long it takes one core."""

    name: str
    seconds: float


def schedule_cases(plan: Path, ledger: Path, scale: str, cores: int) -> list[Case]:
    """Plays a plan through on several nodes, with the cost of a trial as a ledger has it."""
    chosen = bf.read_plan(plan, scale=scale, data_dir=Path("data"))
    attacks, fits = jobs(chosen, ledger)
    cases = []
    for nodes in NODES:
        ends = [makespan(each, nodes * cores) for each in (attacks, fits)]  # trials begin when all attacks are done
        figures = {"hours": sum(end for end, _ in ends) / 3600, "attacks": ends[0][0] / 3600}
        figures["work"] = sum(job.seconds for job in attacks + fits) / 3600
        figures["efficiency"] = figures["work"] / (figures["hours"] * nodes * cores)
        sentence = (
            f"{chosen.name} at the scale {scale} on {nodes} × {cores} cores (simulated): {{hours}} h, attacks "
            f"{{attacks}} h of them; the last attack is {ends[0][1].name}, the last trial {ends[1][1].name}; share "
            "of the cores that compute"
        )
        cases.append(Case(f"schedule/{chosen.name}/{nodes}", sentence, figures, "efficiency", "number"))
    return cases


def jobs(plan: bf.Plan, ledger: Path) -> tuple[list[Job], list[Job]]:
    """Returns chunks of attacks and fits with their trials, in the order in which a run starts them.

    An attack's cost is its passes per image times that of a forward pass, a trial's is linear in its images.
    """
    records = read(ledger)
    forward = mean(record.forward_ms for record in records if isinstance(record, Cost)) / 1000
    calls = {record.attack: record.calls for record in records if isinstance(record, AttackSummary)}
    sizes = {record.attack: record.sources for record in records if isinstance(record, AttackSummary)}
    attacks = [
        Job(attack.label, calls.get(attack.label, 0.0) * forward * min(plan.chunk, attack.sources - start))
        for attack in plan.attacks
        for start in range(0, attack.sources, plan.chunk)
    ]
    costs: dict[tuple[str, tuple[str, ...]], tuple[float, float]] = {}
    for record in records:
        if isinstance(record, Outcome) and record.folds:
            tested = max(min(sizes[cell.attack], cell.sources * FOLDS) for cell in record.cells)
            fit = record.seconds["fit"] / record.folds / record.fit_sources
            costs[record.detector, record.fitted] = fit, record.seconds["score"] / record.folds / tested
    fits = []
    for _, group in groupby(trials(plan, plan.source, " + ".join(plan.other)), key=lambda trial: trial.fit):
        trial = next(group)
        entry = plan.detector(trial.detector)
        same = [cost for (detector, _), cost in costs.items() if detector == trial.detector]
        known = costs.get((trial.detector, trial.fitted))
        fit, score = known or (tuple(map(mean, zip(*same, strict=True))) if same else (0.0, 0.0))
        sources = min(entry.sources, *(plan.attack(label).sources for label in trial.fitted))
        folds = 1 if sources >= CROSS_VALIDATED else FOLDS
        seconds = folds * (fit * FIT_SHARE * sources + score * sources)
        fits.append(Job(f"{trial.detector} fitted to {', '.join(trial.fitted)}", seconds))
    return sorted(attacks, key=lambda job: -job.seconds), fits


def makespan(tasks: Sequence[Job], workers: int) -> tuple[float, Job]:
    """Returns when the last task ends and which it is, if each free worker takes the next one."""
    free = [0.0] * workers
    last = 0.0, tasks[0]
    for job in tasks:
        end = heapq.heappop(free) + job.seconds
        heapq.heappush(free, end)
        last = max(last, (end, job), key=lambda pair: pair[0])
    return last


if __name__ == "__main__":
    sys.exit(main())
