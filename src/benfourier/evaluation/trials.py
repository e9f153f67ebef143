"""Trials: one detector, fitted to one set of attacks, and all that is asked of it."""

import json
from dataclasses import dataclass

from benfourier.evaluation.bench import Bench
from benfourier.evaluation.intervals import DRAWS
from benfourier.evaluation.plan import DetectorPlan, Plan
from benfourier.evaluation.versions import versions
from benfourier.evaluation.walk import FOLDS
from benfourier.store.digest import digest_of

SMALL = 500  # source images; sets with fewer are cross-validated
VERSION = 2  # of what is computed; raise it with every change of numbers


@dataclass(frozen=True)
class Target:
    """What a detector is tested on: an attack's images of one source."""

    source: str
    attack: str


@dataclass(frozen=True)
class Ask:
    """What one protocol asks of a fitted detector; it becomes one outcome."""

    protocol: str
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class Trial:
    """One detector, fitted to one set of attacks.

    Args:
        detector: label.
        fitted: labels of the attacks.
        source: label of the data.
        asks: by protocol.
    """

    detector: str
    fitted: tuple[str, ...]
    source: str
    asks: tuple[Ask, ...]

    def __str__(self) -> str:
        return f"{self.detector} fitted to {', '.join(self.fitted)}"

    @property
    def targets(self) -> tuple[Target, ...]:
        """All targets, each once."""
        return tuple(dict.fromkeys(target for ask in self.asks for target in ask.targets))


def folds_for(bench: Bench, entry: DetectorPlan, trial: Trial) -> tuple[int, ...]:
    """Returns the folds that are tested in turn: all if one of the sets is small, else the first only."""
    attacks = {*trial.fitted, *(target.attack for target in trial.targets if target.source == trial.source)}
    sizes = [min(entry.sources, len(bench.examples(trial.source, attack))) for attack in attacks]
    inside = any(target.source == trial.source for target in trial.targets)
    return tuple(range(FOLDS)) if inside and min(sizes) < SMALL else (0,)


def key_of(bench: Bench, plan: Plan, trial: Trial, ask: Ask) -> str:
    """Returns the digest of everything that an outcome depends on."""
    entry, digests = plan.detector(trial.detector), bench.digests
    folds = folds_for(bench, entry, Trial(trial.detector, trial.fitted, trial.source, (ask,)))
    changed: list[object] = [entry.method.version] if entry.method.version > 1 else []
    changed += [f"{entry.twins} twin"] if entry.twins != "one" else []
    used = [(trial.source, attack) for attack in trial.fitted]
    used += [(target.source, target.attack) for target in ask.targets]
    told = {
        "version": VERSION,
        "versions": versions(),
        "detector": [entry.label, entry.name, entry.options, entry.sources, entry.calibration, entry.reduced, *changed],
        "protocol": ask.protocol,
        "fitted": trial.fitted,
        "targets": [[target.source, target.attack] for target in ask.targets],
        "folds": folds,
        "seed": plan.seed,
        "draws": DRAWS,
        "examples": [digests[f"examples {source} {attack}"] for source, attack in used],
        "others": [digests[name] for name in ("weights", "calibration", "wrong", "beyond")],
    }
    return digest_of([json.dumps(told, sort_keys=True)])
