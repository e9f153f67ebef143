"""The first screen: a sentence, a table and a picture that say which detector to use, how good it is and what it costs.

Of several fits the one to the default mixture speaks for a ledger, or else that to all attacks.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from benfourier.report.detection_tables import BELOW_MARK, BELOW_NOTE, each_source
from benfourier.report.figures import DOTS_CAPTION, ENOUGH, LINES_CAPTION, attack_dots, attack_lines
from benfourier.report.registry import FULL, TERMINAL, Figure, figure, line_styles, sentences, table
from benfourier.report.results import AUROC, MEAD, TO_MANY, WORST, CellRef, Results
from benfourier.report.table import (
    APART,
    BELOW,
    Entry,
    Footnotes,
    Row,
    Table,
    mark_best,
    milliseconds,
    missing,
    percent,
    percent_text,
    plural,
    quote,
)
from benfourier.store.records import Estimate, Outcome
from benfourier.store.vocabulary import BASELINE, ProtocolName

PAGE_AND_TERMINAL = frozenset({FULL, TERMINAL})
MAX_ROWS = 12  # detectors of the table, beside the baseline
MAX_LINES = 6  # detectors of the picture, beside the baseline; more cannot be told apart
WIDTH = 4.6  # inches of the picture, so that its letters can be read on a phone
PROTOCOLS = (ProtocolName.MIXTURE, ProtocolName.ALL_ATTACKS, ProtocolName.SAME_ATTACK, *ProtocolName)
TIME = "ms per image"
FAR = 3  # times as far as boundary attacks; the default mixture goes 1.2 and 8 times as far
BOUNDARY, FIXED, UNSEEN = "boundary attacks", "fixed strengths", "unseen attacks"  # kinds of attacks
WEAK, STRONG = f"weak, <\xa0{FAR}\xa0× as far", f"strong, ≥\xa0{FAR}\xa0× as far"
KINDS = {  # and what is said of them
    BOUNDARY: "Boundary attacks stop at the nearest adversarial image: {}.",
    WEAK: f"Weak: fixed strengths less than {FAR} times as far from the image as boundary attacks (median L2): {{}}.",
    STRONG: f"Strong: at least {FAR} times as far: {{}}.",
    FIXED: "Fixed strengths: {}.",
    UNSEEN: "Unseen: of other kinds than those in the fit: {}.",
}


@dataclass(frozen=True)
class Ranked:
    """A detector under all attacks that it was tested on."""

    detector: str  # label
    is_baseline: bool  # True for the baseline
    outcomes: tuple[Outcome, ...]  # of the protocol that speaks for the ledger, and of unseen attacks
    cells: tuple[CellRef, ...]  # theirs, with a known AUROC

    @cached_property
    def lowest(self) -> CellRef:
        """The cell with the least AUROC."""
        return min(self.cells, key=lambda ref: ref.auroc.value)

    @property
    def worst(self) -> Estimate:
        """The least AUROC, with the interval of the least over attacks where one fit was tested on several."""
        overall, cells = self.lowest.outcome.overall, self.lowest.outcome.cells
        return overall[WORST] if len(cells) > 1 and WORST in overall else self.lowest.auroc

    @property
    def mead(self) -> Estimate | None:
        """Share of the images whose every attack is caught, unseen ones left out; None if it is unknown."""
        shares = (each.overall[MEAD] for each in self.outcomes if each.protocol in TO_MANY and MEAD in each.overall)
        return next((share for share in shares if math.isfinite(share.value)), None)

    @property
    def attacks(self) -> int:
        """Number of attacks."""
        return len({ref.cell.attack for ref in self.cells})


@dataclass(frozen=True)
class Ranking:
    """All detectors that were fitted to images of one source, under the protocol that speaks for the ledger."""

    protocol: ProtocolName  # that one
    whole: tuple[Ranked, ...]  # tested on all attacks, the best worst case first
    parts: tuple[Ranked, ...]  # tested on fewer, so that they may have skipped the hardest
    kinds: Mapping[str, tuple[str, ...]]  # attacks of each kind that there is, the nearest first

    @property
    def top(self) -> tuple[Ranked, ...]:
        """The best of those that were tested on all attacks, and the baseline."""
        rest = tuple(ranked for ranked in self.whole[MAX_ROWS:] if ranked.is_baseline)
        return (*self.whole[:MAX_ROWS], *rest)

    def cells(self, ranked: Ranked, kind: str) -> tuple[CellRef, ...]:
        """Returns a detector's cells of one kind of attacks."""
        return tuple(ref for ref in ranked.cells if ref.cell.attack in self.kinds[kind])


def rank(results: Results, source: str) -> Ranking | None:
    """Returns the ranking of the detectors that were fitted to images of that source; None without any AUROC."""
    protocol = next((each for each in PROTOCOLS if results.cells(each, source)), None)
    if protocol is None:
        return None
    protocols = (protocol, ProtocolName.UNSEEN) if protocol == ProtocolName.MIXTURE else (protocol,)
    every = []
    for detector in results.detectors:
        outcomes = [each for name in protocols for each in results.of(name, source) if each.detector == detector]
        if protocol in TO_MANY:  # of fits to several mixtures the last counts
            outcomes = list({each.protocol: each for each in outcomes}.values())
        refs = (CellRef(outcome, cell) for outcome in outcomes for cell in outcome.cells)
        cells = tuple(ref for ref in refs if ref.known(AUROC))
        if cells:
            every.append(Ranked(detector, results.methods[detector] == BASELINE, tuple(outcomes), cells))
    every.sort(key=lambda ranked: (-ranked.attacks, -ranked.worst.value))
    whole = tuple(ranked for ranked in every if ranked.attacks == every[0].attacks)
    return Ranking(protocol, whole, tuple(every[len(whole) :]), _kinds(results, source, every))


def _kinds(results: Results, source: str, every: Sequence[Ranked]) -> dict[str, tuple[str, ...]]:
    """The attacks of each kind: unseen, at the boundary, and fixed strengths by their distance beside those."""
    protocols = {ref.cell.attack: ref.outcome.protocol for ranked in every for ref in ranked.cells}
    l2 = {each.attack: each.l2 for each in results.attack_summaries if each.source == source}
    near = [l2[attack] for attack in results.boundary_attacks if l2.get(attack, 0) > 0]
    kinds: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for attack in sorted(protocols, key=results.attacks.index):
        ratio = l2.get(attack, math.nan) / statistics.median(near) if near else math.nan
        if protocols[attack] == ProtocolName.UNSEEN:
            kinds[UNSEEN].append(attack)
        elif attack in results.boundary_attacks:
            kinds[BOUNDARY].append(attack)
        else:
            kinds[FIXED if math.isnan(ratio) else WEAK if ratio < FAR else STRONG].append(attack)
    return {kind: tuple(attacks) for kind, attacks in kinds.items() if attacks}


@sentences("verdict", section="summary", audiences=PAGE_AND_TERMINAL)
def verdict(results: Results) -> Iterator[str]:
    """Yields one sentence: the detector with the best worst case, and whether that is good enough."""
    rankings = {source: ranking for source in results.sources if (ranking := rank(results, source))}
    if not rankings:
        done = "trial in which an attack succeeded on enough images" if results.outcomes else "finished trial"
        yield f"This ledger holds no {done}."
    for source, ranking in rankings.items():
        best, kinds = ranking.whole[0], ranking.kinds
        data = f" on {source}" if len(results.sources) > 1 else ""
        fit = "" if best.is_baseline or ranking.protocol in TO_MANY else f", {_fit(ranking.protocol)},"
        known = " but the unseen ones" if UNSEEN in kinds else ""
        share = percent_text(best.mead) if best.mead else ""
        caught = f", every attack{known} caught on {share} of the images at 5 % false alarms" if share else ""
        level = f"an AUROC of {ENOUGH} % under every attack"
        fails = f"no detector holds {level}, so do not rely on one alone, and"
        holds = f"it holds {level}, but" if 100 * best.worst.value >= ENOUGH else fails
        attacker = "an attacker who knows the detector"
        only_near = f"attacks beyond the decision boundary and {attacker} were not tested"
        yield (
            f"{quote(best.detector)}{fit} has the best worst case of {plural(len(ranking.whole), 'detector')}{data}: "
            f"AUROC {percent_text(best.worst)} under {best.lowest.name}{caught}; {holds} "
            f"{only_near if kinds.keys() <= {BOUNDARY, UNSEEN} else f'{attacker} was not tested'}."
        )


def _fit(protocol: ProtocolName) -> str:
    words = {**TO_MANY, ProtocolName.SAME_ATTACK: "the tested attack"}
    return f"fitted to {words[protocol]}" if protocol in words else protocol.title[0].lower() + protocol.title[1:]


@table("summary", section="summary", audiences=PAGE_AND_TERMINAL)
@each_source
def summary(results: Results, source: str) -> Iterator[Table]:
    """Yields a row per detector: its worst AUROC under each kind of attack, what it catches, and its time."""
    ranking = rank(results, source)
    if ranking is None:
        return
    shown = (*ranking.top, *ranking.parts)
    kinds = [kind for kind in ranking.kinds if len(ranking.kinds) > 1]  # of one kind the worst case says all
    times = {cost.detector: cost.features_ms for cost in results.costs}
    entries = {
        "worst of all": [percent(ranked.worst) for ranked in shown],
        "all caught at 5 %": [percent(ranked.mead) for ranked in shown],
        TIME: [milliseconds(times.get(ranked.detector, math.nan)) for ranked in shown],
        **{kind: [_least(ranking.cells(ranked, kind)) for ranked in shown] for kind in kinds},
    }
    columns = [heading for heading, column in entries.items() if any(entry.value is not None for entry in column)]
    footnotes, rows = Footnotes(), []
    for place, ranked in enumerate(shown):
        label = footnotes.mark(ranked.detector, _reduced(ranked, ranking))
        row = tuple(entries[heading][place] for heading in columns)
        rows.append(Row(label, row, APART if ranked.is_baseline else ""))
    marked = mark_best(rows[: len(ranking.top)], [place for place, heading in enumerate(columns) if heading != TIME])
    title = f"Worst AUROC{' under each kind of attack' if kinds else ''}, %, {_fit(ranking.protocol)}"
    below = any(entry.emphasis == BELOW for row in rows for entry in row.entries)
    notes = [*footnotes.notes, *[BELOW_NOTE] * below, *_notes(results, ranking)]
    yield Table("summary", title, "detector", tuple(columns), (*marked, *rows[len(marked) :]), tuple(notes))


def _least(refs: Sequence[CellRef]) -> Entry:
    """The least AUROC of a kind of attacks, marked if it is below the baseline's under the same attack."""
    if not refs:
        return missing()
    lowest = min(refs, key=lambda ref: ref.auroc.value)
    entry = percent(lowest.auroc)
    return replace(entry, text=f"{entry.text} {BELOW_MARK}", emphasis=BELOW) if lowest.is_below_baseline else entry


def _reduced(ranked: Ranked, ranking: Ranking) -> str:
    """What a footnote must say of a detector."""
    few = f"tested on {ranked.attacks} of {plural(ranking.whole[0].attacks, 'attack')}"
    reduced = dict.fromkeys(outcome.reduced for outcome in ranked.outcomes if outcome.reduced)
    return "; ".join([*[few] * (ranked in ranking.parts), *reduced])


def _notes(results: Results, ranking: Ranking) -> Iterator[str]:
    """What stands below the table."""
    for kind, attacks in ranking.kinds.items():
        yield KINDS[kind].format(", ".join(attacks))
    if ranking.protocol in TO_MANY:
        known = " but the unseen ones" if UNSEEN in ranking.kinds else ""
        yield f"All caught: share of the images on which every successful attack{known} is caught, at 5 % false alarms."
    if results.costs:
        yield f"Milliseconds include the network's own {min(cost.forward_ms for cost in results.costs):.3g}."
    rest = len(ranking.whole) - len(ranking.top)
    if rest:
        yield f"{plural(rest, 'other detector')}: see “{ranking.protocol.title}”."
    few = sum(not cell.metrics for outcome in results.outcomes for cell in outcome.cells)
    if few:
        yield f"Too few successful attacks for a number: {plural(few, 'cell')} of the ledger."
    if results.failures:
        yield f"{plural(len(results.failures), 'trial')} failed; the errors stand under “Failures”."


@figure("first-screen", section="summary")
def first_screen(results: Results) -> Iterator[Figure]:
    """Yields AUROC over strength, or without strengths a dot per attack."""
    for place, source in enumerate(results.sources, 1):
        ranking = rank(results, source)
        if ranking is None:
            continue
        name, fit = f"first-screen-{place}", _fit(ranking.protocol).capitalize()
        groups = _groups(results, source, ranking)
        if groups:
            lines = [each for number, each in enumerate(ranking.top) if number < MAX_LINES or each.is_baseline]
            styles = line_styles(ranked.detector for ranked in lines)
            panel = attack_lines(groups, {each.detector: _series(each, ranking) for each in lines}, styles, WIDTH)
            title, caption, legend = f"AUROC over strength, {source}", f"{fit}. {LINES_CAPTION}", tuple(styles.values())
            yield Figure(name, title, caption, (panel,), legend)
        else:
            panel = attack_dots({ranked.detector: ranked.cells for ranked in reversed(ranking.top)}, WIDTH)
            yield Figure(name, f"AUROC under every attack, {source}", f"{fit}. {DOTS_CAPTION}", (panel,))


def _groups(results: Results, source: str, ranking: Ranking) -> list[list[str]]:
    """Attacks at fixed strengths by method, each from the weakest, the largest group first; boundary attacks before."""
    summaries = [each for each in results.attack_summaries if each.source == source]
    fixed = {attack for kind in (WEAK, STRONG, FIXED) for attack in ranking.kinds.get(kind, ())}
    groups: dict[str, list[str]] = {}
    for each in sorted(summaries, key=lambda each: each.l2):
        if each.attack in fixed:
            groups.setdefault(each.method, []).append(each.attack)
    ordered = sorted(groups.values(), key=len, reverse=True)
    if ordered and BOUNDARY in ranking.kinds:
        ordered[0].insert(0, BOUNDARY)
    return [*ordered, [UNSEEN]] if ordered and UNSEEN in ranking.kinds else ordered


def _series(ranked: Ranked, ranking: Ranking) -> dict[str, float]:
    """AUROC in percent by attack; of boundary and of unseen attacks the worst."""
    series = {ref.cell.attack: 100 * ref.auroc.value for ref in ranked.cells}
    for kind in {BOUNDARY, UNSEEN} & ranking.kinds.keys():
        cells = ranking.cells(ranked, kind)
        series |= {kind: min(100 * ref.auroc.value for ref in cells)} if cells else {}
    return series
