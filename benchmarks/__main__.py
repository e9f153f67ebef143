"""Runs every case, prints the results, and writes them as JSON; exit code 1 if a limit is broken."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import features, kernel, memory
from benchmarks.networks import ALEXNET, RESNET20, VGG16
from benchmarks.results import RESULTS, Case, Environment, save

THREADS = 2


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds; written only where --json says")
    parser.add_argument("--json", type=Path, help="where to write the results; by default benchmarks/results.json")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    rounds = 2 if options.quick else 21
    console = Console(highlight=False)
    cases = [_shown(console, case) for case in _cases(rounds)]
    environment = Environment.here(THREADS, rounds)
    console.print(_table(cases))
    path = options.json or (None if options.quick else RESULTS)
    if path is not None:
        save(path, environment, cases)
        console.print(f"written to {path}")
    return 0 if all(case.holds for case in cases) else 1


def _cases(rounds: int) -> list[Callable[[], Case]]:
    """The cases, each a call that measures it. Memory hardly varies, so it is measured thrice at most."""
    few = min(3, rounds - 1)
    return [
        lambda: features.measure(ALEXNET, 0.10, rounds),
        lambda: features.measure(VGG16, 0.12, rounds),
        lambda: features.measure(RESNET20, 0.45, rounds),
        lambda: kernel.measure(50.0, rounds),
        lambda: memory.measure(ALEXNET, 2.0, few, THREADS),
        lambda: memory.measure(VGG16, 2.0, few, THREADS),
    ]


def _shown(console: Console, measure: Callable[[], Case]) -> Case:
    """Measures a case and says at once how it went."""
    case = measure()
    verdict = "holds" if case.holds else "BROKEN"
    console.print(f"{case.name}: {case.limited} {case.value:.3g}, {case.sense} {case.limit:g}: {verdict}")
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
