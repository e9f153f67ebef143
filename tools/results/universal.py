"""One detector for all attacks and strengths: the worst it does, detector by detector."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benfourier.report.counterparts import papers_mbf
from benfourier.report.markdown import line, safe
from benfourier.report.results import ALONE, MBF, MIXED, TRIVIAL
from benfourier.report.spots import told
from benfourier.report.table import NOTHING
from benfourier.store.records import Estimate, Outcome
from tools.results.experiments import Experiment

HOLDS = 0.9  # AUROC under every attack
WORST, MEAD = "worst-auroc", "mead@5%"
NAMES = ("experiment", "fitted to all attacks", "tested on", "worst AUROC, %", "under", "MEAD at 5 %, %")


@dataclass(frozen=True)
class Universal:
    """A detector that was fitted to all attacks together.

    Args:
        outcome: of it.
        worst: its least AUROC over the attacks.
        attack: of that AUROC.
        mead: share of the images whose every successful attack is caught at 5 % false alarms; None if not told.
    """

    outcome: Outcome
    worst: Estimate
    attack: str
    mead: Estimate | None


def universals(experiment: Experiment) -> tuple[Universal, ...]:
    """Returns all detectors that were tested on every attack, the best worst case first."""
    found = [_of(outcome) for outcome in experiment.results.of(MIXED, experiment.source)]
    told = [universal for universal in found if universal is not None]
    most = max((_attacks(universal.outcome) for universal in told), default=0)
    whole = [universal for universal in told if _attacks(universal.outcome) == most]
    return tuple(sorted(whole, key=lambda universal: -universal.worst.value))


def universal_sentence(experiment: Experiment) -> Iterator[str]:
    """Yields which detector is the best, and what mbf does there."""
    ranked = universals(experiment)
    if not ranked:
        return
    best = ranked[0]
    others = [universal for universal in ranked[1:] if universal.outcome.detector == MBF]
    yield (
        f"One detector for all attacks and strengths: the best worst case is that of {best.outcome.detector}, an AUROC "
        f"of {told(best.worst)} under {best.attack}{_mead(best)}"
        + "".join(f"; {MBF} has {told(mine.worst)} under {mine.attack}{_mead(mine)}" for mine in others)
        + "."
    )


def universal_table(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yields a table of each experiment's best detector, mbf with our settings and the paper's, and the trivial one."""
    rows = []
    for experiment in experiments:
        ranked, shown = universals(experiment), {MBF, papers_mbf(experiment.results), TRIVIAL}
        for universal in ranked:
            if universal is ranked[0] or universal.outcome.detector in shown:
                rows.append(_row(experiment, universal, best=universal is ranked[0]))
    if rows:
        yield from (line(*NAMES), line("---", "---", "---:", "---:", "---", "---:"), *rows)


def holding(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yields where one detector holds at every strength, and where none does."""
    best = [(each.name, universals(each)[0]) for each in experiments if _has_strengths(each)]
    if not best:
        return
    places: dict[bool, list[str]] = {True: [], False: []}
    for name, one in best:
        text = f"{name} ({one.outcome.detector}: {told(one.worst)} under {one.attack})"
        places[one.worst.value >= HOLDS].append(safe(text))
    yield (
        f"**Does one detector hold at every strength?** That is, with an AUROC of at least {100 * HOLDS:.0f} % under "
        f"each attack, if it is fitted to all of them. One does on {'; '.join(places[True]) or 'no data'}. Not even "
        f"the best of those tried does on {'; '.join(places[False]) or 'any data'}."
    )


def _has_strengths(experiment: Experiment) -> bool:
    """True if detectors were fitted to all attacks, some of which go further than to the boundary."""
    near = {cell.attack for outcome in experiment.results.of(ALONE, experiment.source) for cell in outcome.cells}
    return any(cell.attack not in near for one in universals(experiment) for cell in one.outcome.cells)


def _row(experiment: Experiment, universal: Universal, *, best: bool) -> str:
    name = safe(universal.outcome.detector)
    mead = _percent(universal.mead) if universal.mead else NOTHING
    return line(
        f"[{safe(experiment.name)}](#{experiment.anchor('mixed')})",
        f"**{name}**" if best else name,
        f"{_attacks(universal.outcome)} attacks",
        _percent(universal.worst),
        safe(universal.attack),
        mead,
    )


def _of(outcome: Outcome) -> Universal | None:
    known = [cell for cell in outcome.cells if "auroc" in cell.metrics and math.isfinite(cell.metrics["auroc"].value)]
    if not known or WORST not in outcome.overall:
        return None
    worst = min(known, key=lambda cell: cell.metrics["auroc"].value)
    mead = outcome.overall.get(MEAD)
    known_mead = mead if mead and math.isfinite(mead.value) else None
    return Universal(outcome, outcome.overall[WORST], worst.attack, known_mead)


def _attacks(outcome: Outcome) -> int:
    return sum("auroc" in cell.metrics for cell in outcome.cells)


def _mead(universal: Universal) -> str:
    return f", and it catches all attacks on {told(universal.mead)} of the images" if universal.mead else ""


def _percent(estimate: Estimate) -> str:
    return told(estimate).replace(" %", "")
