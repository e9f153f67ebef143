"""Trials of a plan: a detector, what it is fitted to and tested on, and the key of its outcome."""

import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import NamedTuple

from benfourier.evaluation.evaluation_data import FOLDS, EvaluationData
from benfourier.evaluation.plan import Plan
from benfourier.metrics.bootstrap import DRAWS
from benfourier.models.weights import weights_digest
from benfourier.store.artifact import digest_of
from benfourier.store.vocabulary import (
    NEEDS,
    ProtocolName,
    Role,
)

CROSS_VALIDATED = 500  # source images; smaller sets are tested in all folds
VERSION = 3  # of what is computed; raise it with every change of numbers
LIBRARIES = ("benfourier", "numba", "numpy", "scikit-learn", "scipy", "torch")
Labels = tuple[str, ...]  # of attacks


class Target(NamedTuple):
    """What a detector is tested on: an attack's images of one source."""

    source: str
    attack: str


@dataclass(frozen=True)
class Trial:
    """One detector, fitted to one set of attacks, and what one protocol tests it on; it becomes one outcome."""

    protocol: ProtocolName
    detector: str  # label
    fitted: Labels
    source: str  # label of the data that it is fitted to
    targets: tuple[Target, ...]

    def __str__(self) -> str:
        return f"{self.detector} fitted to {', '.join(self.fitted)}, {self.protocol}"

    @property
    def fit(self) -> tuple[str, Labels, str]:
        """What decides the fit; trials with the same fit are one task."""
        return self.detector, self.fitted, self.source

    def folds(self, data: EvaluationData) -> tuple[int, ...]:
        """Returns the folds that are tested in turn: all if one of the sets is small, else the first only."""
        entry = data.plan.detector(self.detector)
        tested = [target.attack for target in self.targets if target.source == self.source]
        sizes = [min(entry.sources, len(data.examples(self.source, attack))) for attack in {*self.fitted, *tested}]
        return tuple(range(FOLDS)) if tested and min(sizes) < CROSS_VALIDATED else (0,)

    def key(self, data: EvaluationData) -> str:
        """Returns the digest of everything that the outcome depends on."""
        entry, digests = data.plan.detector(self.detector), data.digests
        extractors = [kind for part in entry.method.parts_of_fit() for kind in part.extractors]
        used = [*((self.source, attack) for attack in self.fitted), *self.targets]
        parts = {
            "version": VERSION,
            "versions": versions(),
            "detector": [entry.label, entry.name, entry.options, entry.sources, entry.calibration, entry.reduced],
            "method": [max(kind.version for kind in extractors), entry.twins],
            "protocol": self.protocol,
            "fitted": self.fitted,
            "targets": self.targets,
            "folds": self.folds(data),
            "seed": data.plan.seed,
            "draws": DRAWS,
            "examples": [digests[f"examples {source} {attack}"] for source, attack in used],
            "others": [digests[name] for name in ("weights", "calibration", "misclassified", "extra clean")],
        }
        second = [weights_digest(each.module) for each in data.supplied(entry).values()]
        return digest_of([json.dumps(parts, sort_keys=True), *second])


Task = tuple[Trial, ...]  # that share a fit


def trials(plan: Plan, source: str, other: str, only: str | None = None) -> tuple[Trial, ...]:
    """Returns the trials of a plan, or of one of its protocols; cheap detectors first, trials of one fit together."""
    fits: dict[Labels, list[tuple[ProtocolName, tuple[Target, ...]]]] = {}
    for protocol in map(ProtocolName, plan.protocols if only is None else (only,)):
        for fitted, tested, tested_source in _tests(protocol, plan, source, other):
            targets = tuple(Target(tested_source, attack) for attack in tested)
            fits.setdefault(fitted, []).append((protocol, targets))
    ordered = sorted(plan.detectors, key=lambda entry: max(map(NEEDS.index, entry.method.needs), default=0))
    return tuple(
        Trial(protocol, entry.label, fitted, source, targets)
        for entry in ordered
        for fitted, tests in fits.items()
        if len(fitted) > 1 or plan.has_single_fits(entry)
        for protocol, targets in tests
    )


def _tests(protocol: ProtocolName, plan: Plan, source: str, other: str) -> Iterator[tuple[Labels, Labels, str]]:
    """The attacks that one protocol fits to, with the attacks that it tests then, and the source of the tests."""
    near, far = plan.labels(Role.BOUNDARY), plan.labels(Role.STRENGTH)
    match protocol:
        case ProtocolName.SAME_ATTACK:
            yield from (((attack,), (attack,), source) for attack in near)
        case ProtocolName.OTHER_ATTACK:
            yield from (((attack,), near, source) for attack in near)
        case ProtocolName.OTHER_DATA:
            yield from (((attack,), (attack,), other) for attack in near if plan.attack(attack).transfer)
        case ProtocolName.OTHER_STRENGTH:
            for fitted, tested in ((near, far), (far, (*near, *far))):
                yield from (((attack,), tested, source) for attack in fitted)
                if len(fitted) > 1:
                    yield fitted, tested, source
        case ProtocolName.ALL_ATTACKS:
            yield (*near, *far), (*near, *far), source
        case ProtocolName.MIXTURE:
            yield plan.labels(Role.MIXTURE), (*near, *far), source
        case ProtocolName.UNSEEN:
            yield plan.labels(Role.MIXTURE), plan.labels(Role.UNSEEN), source
        case ProtocolName.LEFT_OUT:
            every = (*near, *far)
            yield from ((tuple(other for other in every if other != attack), (attack,), source) for attack in every)


@cache
def versions() -> dict[str, str]:
    """Returns the versions of Python and of the libraries that results depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}
