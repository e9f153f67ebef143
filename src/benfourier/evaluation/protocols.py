"""Protocols: what a detector is fitted to, and what it is tested on."""

from collections.abc import Callable, Iterator, Mapping

from benfourier.evaluation.plan import Plan
from benfourier.evaluation.trials import Target, Trial
from benfourier.store.vocabulary import NEEDS, ProtocolName, Role

Labels = tuple[str, ...]
Tests = Iterator[tuple[Labels, tuple[Target, ...]]]  # attacks that are fitted to, and what is tested then


def _same_attack(plan: Plan, source: str, other: str) -> Tests:
    for attack in plan.labels(Role.BOUNDARY):
        yield (attack,), (Target(source, attack),)


def _other_attack(plan: Plan, source: str, other: str) -> Tests:
    attacks = plan.labels(Role.BOUNDARY)
    for attack in attacks:
        yield (attack,), _targets(source, attacks)


def _other_data(plan: Plan, source: str, other: str) -> Tests:
    for attack in plan.labels(Role.BOUNDARY):
        if plan.attack(attack).transfer:
            yield (attack,), (Target(other, attack),)


def _other_strength(plan: Plan, source: str, other: str) -> Tests:
    near, far = plan.labels(Role.BOUNDARY), plan.labels(Role.STRENGTH)
    for fitted, tested in ((near, far), (far, (*near, *far))):
        for attack in fitted:
            yield (attack,), _targets(source, tested)
        if len(fitted) > 1:
            yield fitted, _targets(source, tested)


def _all_attacks(plan: Plan, source: str, other: str) -> Tests:
    attacks = (*plan.labels(Role.BOUNDARY), *plan.labels(Role.STRENGTH))
    yield attacks, _targets(source, attacks)


def _targets(source: str, attacks: Labels) -> tuple[Target, ...]:
    return tuple(Target(source, attack) for attack in attacks)


TESTS: Mapping[ProtocolName, Callable[[Plan, str, str], Tests]] = {
    ProtocolName.SAME_ATTACK: _same_attack,
    ProtocolName.OTHER_ATTACK: _other_attack,
    ProtocolName.OTHER_DATA: _other_data,
    ProtocolName.OTHER_STRENGTH: _other_strength,
    ProtocolName.ALL_ATTACKS: _all_attacks,
}


def trials(plan: Plan, source: str, other: str, only: str | None = None) -> tuple[Trial, ...]:
    """Returns the trials of a plan, or of one of its protocols; cheap detectors first, trials of one fit together."""
    fits: dict[Labels, list[tuple[ProtocolName, tuple[Target, ...]]]] = {}
    for protocol in map(ProtocolName, plan.protocols if only is None else (only,)):
        for fitted, targets in TESTS[protocol](plan, source, other):
            fits.setdefault(fitted, []).append((protocol, targets))
    ordered = sorted(plan.detectors, key=lambda entry: max(map(NEEDS.index, entry.method.needs), default=0))
    return tuple(
        Trial(protocol, entry.label, fitted, source, targets)
        for entry in ordered
        for fitted, tests in fits.items()
        if entry.twins == "one" or len(fitted) > 1
        for protocol, targets in tests
    )
