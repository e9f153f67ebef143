"""Runs every case, prints the results, and writes them as JSON; exit code 1 if a limit is broken."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import attacks, detectors, forward, service
from benchmarks.case import RESULTS, Case, Environment, merge, save
from benchmarks.setup import NETWORKS
from benfourier.models.device import device_names

THREADS = 2


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every case, small; no limit counts")
    parser.add_argument("--json", type=Path, help="where to write the results; by default benchmarks/results.json")
    parser.add_argument("--only", default="", help="how the names of the cases begin; other results stay as they are")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    rounds = 2 if options.quick else 21
    console = Console(highlight=False)
    chosen = {name: run for name, run in _cases(rounds, quick=options.quick).items() if name.startswith(options.only)}
    if not chosen:
        parser.error(f"no case begins with {options.only!r}; there are: {', '.join(_cases(rounds, quick=False))}")
    cases = [_run(console, run) for run in chosen.values()]
    environment = Environment.here(THREADS, rounds)
    console.print(_table(cases))
    path = options.json or (None if options.quick else RESULTS)
    if path is not None:
        save(path, environment, merge(path, environment, cases) if options.only else cases)
        console.print(f"written to {path}")
    return 0 if options.quick or all(case.holds for case in cases) else 1


def _cases(rounds: int, *, quick: bool) -> dict[str, Callable[[], Case]]:
    """The cases by name, each a call that measures it. Memory hardly varies: it is measured three times at most."""
    few = min(3, rounds - 1)
    return {
        **{f"features/{name}": partial(forward.features, name, rounds) for name in NETWORKS},
        "kernel": partial(forward.kernel, rounds),
        **{f"memory/{name}": partial(forward.memory, name, few, THREADS) for name in NETWORKS if name != "vit-b-16"},
        **{f"attacks/{name}": partial(attacks.speed, name, THREADS, quick=quick) for name in attacks.ROUNDS},
        **{
            f"attacks/{name}-distance": partial(attacks.distance, name, THREADS, quick=quick) for name in attacks.ROUNDS
        },
        **{f"detectors/{name}": partial(detectors.cost, name, rounds, quick=quick) for name in detectors.DETECTORS},
        **{f"detectors/views-{name}": partial(detectors.views, name, rounds) for name in detectors.VIEWS},
        "svm/fit": partial(detectors.svm_fit, quick=quick),
        "svm/score": partial(detectors.svm_score, THREADS),
        **{f"service/{name}": partial(service.throughput, name, rounds) for name in service.LIMITS},
        **_gpu_cases(rounds),
    }


def _gpu_cases(rounds: int) -> dict[str, Callable[[], Case]]:
    """Some of the cases on the first GPU; none where there is no GPU."""
    return {
        name: case
        for gpu in device_names()[1:2]
        for name, case in (
            *((f"gpu/features/{name}", partial(forward.features, name, rounds, gpu)) for name in NETWORKS),
            *((f"gpu/views-{name}", partial(detectors.views, name, rounds, gpu)) for name in detectors.VIEWS),
        )
    }


def _run(console: Console, measure: Callable[[], Case]) -> Case:
    """Measures a case and prints its result at once."""
    case = measure()
    limit = "reported" if case.limit is None else f"{case.sense} {case.limit:g}: {'holds' if case.holds else 'BROKEN'}"
    console.print(f"{case.name}: {case.result} {case.value:.3g}, {limit}")
    return case


def _table(cases: list[Case]) -> Table:
    table = Table(title="every figure")
    table.add_column("case")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for case in cases:
        for name, value in case.figures.items():
            table.add_row(case.name, name, f"{value:.4g}")
        table.add_section()
    return table


if __name__ == "__main__":
    sys.exit(main())
