"""Runs every case, prints the results, and writes them as JSON; exit code 1 if a limit is broken."""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import attacks, detectors, features, kernel, memory, scale, service
from benchmarks.networks import ALEXNET, RESNET20, VGG16
from benchmarks.results import RESULTS, Case, Environment, merged, save

THREADS = 2


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds; written only where --json says")
    parser.add_argument("--json", type=Path, help="where to write the results; by default benchmarks/results.json")
    parser.add_argument("--only", default="", help="how the names of the cases begin; other results stay as they are")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    rounds = 2 if options.quick else 21
    console = Console(highlight=False)
    chosen = {name: measure for name, measure in _cases(rounds).items() if name.startswith(options.only)}
    if not chosen:
        parser.error(f"no case begins with {options.only!r}; there are: {', '.join(_cases(rounds))}")
    cases = [_shown(console, measure) for measure in chosen.values()]
    environment = Environment.here(THREADS, rounds)
    console.print(_table(cases))
    path = options.json or (None if options.quick else RESULTS)
    if path is not None:
        save(path, environment, merged(path, environment, cases) if options.only else cases)
        console.print(f"written to {path}")
    return 0 if all(case.holds for case in cases) else 1


def _cases(rounds: int) -> dict[str, Callable[[], Case]]:
    """The cases by name, each a call that measures it. Memory hardly varies, so it is measured thrice at most."""
    few = min(3, rounds - 1)
    return {
        "features/alexnet": lambda: features.measure(ALEXNET, 0.10, rounds),
        "features/vgg16": lambda: features.measure(VGG16, 0.12, rounds),
        "features/cifar-resnet20": lambda: features.measure(RESNET20, 0.45, rounds),
        "kernel": lambda: kernel.measure(50.0, rounds),
        "memory/alexnet": lambda: memory.measure(ALEXNET, 2.0, few, THREADS),
        "memory/vgg16": lambda: memory.measure(VGG16, 2.0, few, THREADS),
        "attacks/bim": lambda: attacks.speed("bim", 2.0, THREADS),
        "attacks/bim-distance": lambda: attacks.distance("bim", 1.01, THREADS),
        "attacks/r-pgd": lambda: attacks.speed("r-pgd", 2.0, THREADS),
        "attacks/r-pgd-distance": lambda: attacks.distance("r-pgd", 1.01, THREADS),
        "attacks/cw-l2": lambda: attacks.speed("cw-l2", 1.3, THREADS),
        "attacks/cw-l2-distance": lambda: attacks.distance("cw-l2", 1.01, THREADS),
        "attacks/deepfool": lambda: attacks.speed("deepfool", 1.0, THREADS),
        "attacks/deepfool-distance": lambda: attacks.distance("deepfool", 1.01, THREADS),
        **{
            f"detectors/{name}": partial(detectors.measure, name, limit, rounds)
            for name, limit in (("mahalanobis", 0.5), ("lid", 1.0), ("kd-bu", 1.0), ("c1c2", 1.0), ("defense-gan", 1.0))
        },
        "svm/fit": scale.measure_fit,
        "svm/score": lambda: scale.measure_score(THREADS),
        "service/alexnet": lambda: service.measure(ALEXNET, 0.8, rounds),
        # only reported: a quick network leaves the detector the larger part of the time
        "service/cifar-resnet20": lambda: service.measure(RESNET20, 0.1, rounds),
    }


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
