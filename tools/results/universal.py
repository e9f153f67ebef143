"""One detector for all attacks and strengths: the worst it does, by detector and by what it was fitted to."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benfourier.report.counterparts import papers_mbf
from benfourier.report.markdown import line, safe
from benfourier.report.results import ALONE, MBF, MIXED, STRENGTH, TRIVIAL
from benfourier.report.spots import named, told
from benfourier.report.table import NOTHING
from benfourier.store.records import Estimate, Outcome
from tools.results.experiments import Experiment

HOLDS = 0.9  # AUROC under every attack
WORST, MEAD = "worst-auroc", "mead@5%"
ALL, FIXED, UNFITTED = "all attacks", "all fixed strengths", "nothing"
NAMES = ("experiment", "detector", "fitted to", "tested on", "worst AUROC, %", "under", "MEAD at 5 %, %")


@dataclass(frozen=True)
class Universal:
    """A detector that was tested on all attacks.

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

    @property
    def setting(self) -> tuple[str, str]:
        """The detector, and in words what it was fitted to."""
        fitted = self.outcome.fitted
        some = ALL if self.outcome.protocol == MIXED else FIXED if len(fitted) > 1 else "".join(fitted)
        return self.outcome.detector, UNFITTED if self.outcome.detector == TRIVIAL else some

    def __str__(self) -> str:
        detector, fitted = self.setting
        return named(detector) if detector == TRIVIAL else f"{named(detector)} fitted to {fitted}"


def universals(experiment: Experiment) -> tuple[Universal, ...]:
    """Returns all that were tested on every attack, whatever they were fitted to, the best worst case first."""
    tested = [outcome for name in (MIXED, STRENGTH) for outcome in experiment.results.of(name, experiment.source)]
    found = [_of(outcome) for outcome in tested if outcome.protocol == MIXED or outcome.detector != TRIVIAL]
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
    others = [universal for universal in ranked[1:] if universal.setting == (MBF, ALL)]
    strengths = " and strengths" if _has_strengths(experiment) else ""
    yield (
        f"One detector for all attacks{strengths}: the best worst case is that of {best}, an AUROC "
        f"of {told(best.worst)} under {best.attack}{_mead(best)}"
        + "".join(f"; {mine} has {told(mine.worst)} under {mine.attack}{_mead(mine)}" for mine in others)
        + "."
    )


def universal_table(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yields a table: of each experiment the best of all, the best fitted to all attacks, mbf, and the trivial one."""
    rows = []
    for experiment in experiments:
        ranked, shown = universals(experiment), {MBF, papers_mbf(experiment.results), TRIVIAL}
        whole = next((universal for universal in ranked if universal.outcome.protocol == MIXED), None)
        for universal in ranked:
            detector, fitted = universal.setting
            if universal in (ranked[0], whole) or (detector in shown and fitted in (ALL, UNFITTED)):
                rows.append(_row(experiment, universal, best=universal is ranked[0]))
    if rows:
        yield from (line(*NAMES), line("---", "---", "---", "---:", "---:", "---", "---:"), *rows)


def holding(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yields where one detector holds at every strength, and where none does."""
    best = [(each.name, universals(each)[0]) for each in experiments if _has_strengths(each)]
    if not best:
        return
    places: dict[bool, list[str]] = {True: [], False: []}
    for name, one in best:
        text = f"{name} ({one}: {told(one.worst)} under {one.attack})"
        places[one.worst.value >= HOLDS].append(safe(text))
    yield (
        f"**Does one detector hold at every strength?** That is, with an AUROC of at least {100 * HOLDS:.0f} % under "
        f"each attack, fitted to all of them or to fixed ones. One does on {'; '.join(places[True]) or 'no data'}. "
        f"Not even the best of those tried does on {'; '.join(places[False]) or 'any data'}."
    )


def to_beat(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yields the one setting that has the best worst case over all data with several strengths."""
    known: dict[str, dict[tuple[str, str], Universal]] = {}
    for each in filter(_has_strengths, experiments):
        settings = known.setdefault(f"{each.source} with {each.network}", {})
        settings.update({one.setting: one for one in universals(each) if one.setting not in settings})
    shared = set.intersection(*map(set, known.values())) if known else set()
    worst = [
        min(((name, found[setting]) for name, found in known.items()), key=lambda pair: pair[1].worst.value)
        for setting in sorted(shared)
    ]
    if not worst:
        return
    name, one = max(worst, key=lambda pair: pair[1].worst.value)
    yield (
        f"**The number to beat:** of the {len(shared)} settings that were tried on all of {safe(', '.join(known))}, "
        f"{safe(str(one))} has the best worst case: {told(one.worst)} under {safe(one.attack)} on {safe(name)}"
        f"{_mead(one)} there."
    )


def _has_strengths(experiment: Experiment) -> bool:
    """True if detectors were tested on all attacks, some of which go further than to the boundary."""
    near = {cell.attack for outcome in experiment.results.of(ALONE, experiment.source) for cell in outcome.cells}
    return any(cell.attack not in near for one in universals(experiment) for cell in one.outcome.cells)


def _row(experiment: Experiment, universal: Universal, *, best: bool) -> str:
    name, fitted = map(safe, universal.setting)
    mead = _percent(universal.mead) if universal.mead else NOTHING
    return line(
        f"[{safe(experiment.name)}](#{experiment.anchor('mixed')})",
        f"**{name}**" if best else name,
        fitted,
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
