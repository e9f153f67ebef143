"""From the records of a ledger to results."""

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from benfourier.report.paper import Paper
from benfourier.report.results import MIXED, Results
from benfourier.store.records import (
    Control,
    Cost,
    Crafted,
    Failure,
    KsResult,
    LayerFit,
    Outcome,
    Picture,
    Profile,
    Record,
    Run,
)

Kept = TypeVar("Kept", bound=Record)


def gather(records: Iterable[Record], paper: str | None = None) -> Results:
    """Returns the records by kind.

    Args:
        records: of a ledger, in order.
        paper: the paper's database to show beside them; None to guess it from the data.
    """
    if paper is not None:
        Paper(paper)  # complains of words that name no database
    kinds: dict[type[Any], list[Any]] = {}
    for record in records:
        if isinstance(record, Run):
            kinds.pop(Failure, None)  # what failed is tried again in every run
        kinds.setdefault(type(record), []).append(record)
    outcomes = kinds.get(Outcome, [])
    kept = newest(outcomes)
    done = {outcome.key for outcome in outcomes}
    return Results(
        runs=tuple(kinds.get(Run, [])),
        crafted=_last(kinds.get(Crafted, []), lambda made: (made.source, made.attack)),
        outcomes=kept,
        profiles=_last(kinds.get(Profile, []), lambda made: (made.source, made.split, made.kind)),
        fits=_last(kinds.get(LayerFit, []), lambda made: (made.source, made.split, made.kind)),
        controls=_last(kinds.get(Control, []), lambda made: (made.source, made.attack, made.features)),
        ks=_last(kinds.get(KsResult, []), lambda made: (made.study, made.source, made.split, made.kind)),
        costs=_last(kinds.get(Cost, []), lambda made: made.detector),
        pictures=tuple(kinds.get(Picture, [])),
        failures=tuple(failure for failure in kinds.get(Failure, []) if failure.key not in done),
        replaced=len(outcomes) - len(kept),
        chosen=paper,
    )


def newest(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Returns the outcomes without those that a later one answers anew, in the order of their making."""
    told = list(outcomes)
    later: dict[Hashable, list[set[tuple[str, str]]]] = {}  # what later outcomes of a fit are tested on
    kept = []
    for outcome in reversed(told):
        everything = outcome.protocol == MIXED  # all attacks that the plan had then, and so those of a smaller plan too
        fitted = () if everything else outcome.fitted
        fit, tested = (outcome.protocol, outcome.detector, fitted, outcome.source), _tested(outcome)
        if not any(everything or tested <= other for other in later.setdefault(fit, [])):
            kept.append(outcome)
            later[fit].append(tested)
    return tuple(reversed(kept))


def _tested(outcome: Outcome) -> set[tuple[str, str]]:
    return {(cell.source, cell.attack) for cell in outcome.cells}


def _last(records: list[Kept], identity: Any) -> tuple[Kept, ...]:
    """The last record of every identity, where the first one stood."""
    return tuple({identity(record): record for record in records}.values())
