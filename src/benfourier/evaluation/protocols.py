"""Protocols: what a detector is fitted to, and what it is tested on."""

from collections.abc import Iterator

from benfourier.evaluation.plan import Plan
from benfourier.evaluation.trials import Ask, Target, Trial

NEEDS = ("listens", "samples", "gradients", "searches")  # from cheap to dear


def trials_of(plan: Plan, source: str, other: str, only: str | None = None) -> tuple[Trial, ...]:
    """Returns the trials of a plan, cheap detectors first; a fit that several protocols ask for is made once.

    Args:
        plan: what is asked for.
        source: label of the data that detectors are fitted to.
        other: label of the second source.
        only: one protocol, instead of all in the plan.
    """
    asked: dict[tuple[str, ...], list[Ask]] = {}
    for protocol in plan.protocols if only is None else (only,):
        for fitted, tests in _asks(protocol, plan, source, other):
            asked.setdefault(fitted, []).append(Ask(protocol, tests))
    cost = {
        entry.label: max(NEEDS.index(need) for need in entry.method.needs or {NEEDS[0]}) for entry in plan.detectors
    }
    ordered = sorted(plan.detectors, key=lambda entry: cost[entry.label])
    return tuple(
        Trial(entry.label, fitted, source, tuple(asks))
        for entry in ordered
        for fitted, asks in asked.items()
        if entry.twins == "one" or len(fitted) > 1
    )


def _asks(protocol: str, plan: Plan, source: str, other: str) -> Iterator[tuple[tuple[str, ...], tuple[Target, ...]]]:
    """Attacks to fit to, and what to test on then."""
    near, far = plan.labels("boundary"), plan.labels("strength")
    if protocol == "non-transfer":
        for attack in near:
            yield (attack,), (Target(source, attack),)
    elif protocol == "attack-transfer":
        for attack in near:
            yield (attack,), tuple(Target(source, tested) for tested in near)
    elif protocol == "data-transfer":
        for attack in (label for label in near if plan.attack(label).transfer):
            yield (attack,), (Target(other, attack),)
    elif protocol == "strength-transfer":
        for fitted, tested in ((near, far), (far, (*near, *far))):
            tests = tuple(Target(source, attack) for attack in tested)
            for attack in fitted:
                yield (attack,), tests
            if len(fitted) > 1:
                yield fitted, tests
    else:
        yield (*near, *far), tuple(Target(source, attack) for attack in (*near, *far))
