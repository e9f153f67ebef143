"""What the numbers say, in sentences; every one follows from records of the ledger."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benfourier.report.paper import CITATION, SLIPS, PaperNumber
from benfourier.report.registry import FULL, TERMINAL, sentences
from benfourier.report.results import (
    ACCURACY,
    AUROC,
    COMPARED,
    CROSSED,
    GAIN,
    TO_MANY,
    CellRef,
    Results,
    WorstCase,
    worst_cases,
)
from benfourier.report.table import join, percent_text, plural, quote
from benfourier.store.vocabulary import BASELINE, MBF, ProtocolName

GOOD = 0.9  # AUROC that a detector should have under every attack
NEAR = 2.0  # points; a number farther from the paper's is a difference
METRICS = {AUROC: "AUROC", ACCURACY: "Accuracy"}
TERMINAL_AND_PAGE = frozenset({TERMINAL, FULL})


@sentences("best", section="summary", audiences=TERMINAL_AND_PAGE)
def best(results: Results) -> Iterator[str]:
    """Yields which detector does best in its worst case over all attacks, and whether it can be trusted."""
    if not results.outcomes:
        yield "This ledger holds no finished trial."
    for source in results.sources:
        ranked = worst_cases(results, source)
        for first in ranked[:1]:
            yield f"Best worst case over {plural(first.attacks, 'attack')} on {source}: {_case(first)}."
            plain = [case for case in ranked[1:] if case.fit in (*TO_MANY.values(), "nothing")]
            # mbf and the baseline stand beside it, unless the best is one of them
            methods = [method for method in (MBF, BASELINE) if method != first.outcome.method]
            others = [case for name in methods for case in [c for c in plain if c.outcome.method == name][:1]]
            if others:
                yield f"Beside it: {'; '.join(map(_case, others))}."
            holds = f"an AUROC of {100 * GOOD:.0f} % under every attack"
            nobody = f"No detector here holds {holds}: do not rely on one alone"
            verdict = f"It holds {holds}" if first.worst.value >= GOOD else nobody
            yield f"{verdict}. An attacker who knows the detector was not tested."


def _case(case: WorstCase) -> str:
    fit = "" if case.fit == "nothing" else f" fitted to {case.fit}"
    mead = f", all attacks caught on {percent_text(case.mead)} of the images" if case.mead else ""
    return f"{quote(case.outcome.detector)}{fit}, AUROC {percent_text(case.worst)} under {case.attack}{mead}"


@sentences("same-attack", section="summary", audiences=frozenset({TERMINAL}))
def same_attack(results: Results) -> Iterator[str]:
    """Yields how mbf does when the attack is known, beside the baseline."""
    for label in _labels(results)[:1]:
        yield from _under_protocol(results, ProtocolName.SAME_ATTACK, label)


@sentences("limitations", section="summary", audiences=TERMINAL_AND_PAGE)
def limitations(results: Results) -> Iterator[str]:
    """Yields what is missing or was reduced."""
    few = sum(not cell.metrics for outcome in results.outcomes for cell in outcome.cells)
    if few:
        yield f"Too few successful attacks for a number: {plural(few, 'cell')} of the ledger."
    if results.failures:
        yield f"{plural(len(results.failures), 'trial')} failed; the errors stand under “Failures”."
    reduced = dict.fromkeys(outcome.detector for outcome in results.outcomes if outcome.reduced)
    if reduced:
        yield f"Run below their authors' settings, as the footnotes say: {join(list(reduced))}."


@sentences("summary-mbf", section="summary")
def mbf(results: Results) -> Iterator[str]:
    """Yields how mbf does under every protocol, and how far it lies from the paper's numbers."""
    labels = _labels(results)
    if results.outcomes and not labels:
        yield "This ledger holds no results of mbf."
    for label in labels:
        for protocol in ProtocolName:
            yield from _under_protocol(results, protocol, label)
        if label == results.paper_mbf:
            yield from _beside_paper(results, label)


@sentences("paper", section="paper")
def paper(results: Results) -> Iterator[str]:
    """Yields the source of the paper's numbers, and what look like slips in it."""
    yield f"Numbers of the paper: {CITATION}."
    yield from (f"Probably a slip in it: {slip}." for slip in SLIPS)


def _labels(results: Results) -> list[str]:
    """Settings of mbf to speak of: plain mbf and the paper's; of many others only their tables speak."""
    own = [label for label in results.detectors if results.methods[label] == MBF]
    main = MBF if MBF in own else next(iter(own), None)
    return list(dict.fromkeys(label for label in (main, results.paper_mbf) if label))


def _under_protocol(results: Results, protocol: ProtocolName, label: str) -> Iterator[str]:
    """In how many cells a detector is good, which is its worst, and how it does beside the baseline."""
    refs = results.cells(protocol, detector=label)
    if protocol in CROSSED:  # such trials also hold cells of the fitted attack, which are no transfer
        refs = tuple(ref for ref in refs if ref.cell.attack not in ref.outcome.fitted)
    if refs:
        good = sum(ref.auroc.value >= GOOD for ref in refs)
        worst = min(refs, key=lambda ref: ref.auroc.value)
        yield (
            f"{protocol.title}: {quote(label)} has an AUROC of at least {100 * GOOD:.0f} % in {good} of "
            f"{plural(len(refs), 'cell')}; its worst is {worst.name} with {percent_text(worst.auroc)}."
        )
        yield from beside_baseline(quote(label), refs)


def beside_baseline(label: str, refs: Sequence[CellRef]) -> Iterator[str]:
    """Yields where a detector is better and where worse than the baseline on the same images."""
    paired = [(ref, gain) for ref in refs if (gain := ref.known(GAIN))]
    if not paired:
        yield f"There {label} could not be compared with {BASELINE}, image by image."
        return
    below = sorted((pair for pair in paired if pair[0].is_below_baseline), key=lambda pair: pair[1].value)
    above = sum(gain.low > 0 for _, gain in paired)
    form = "{} ({:+.1f} points, {:+.1f} to {:+.1f})"
    places = join([form.format(ref.name, 100 * gain.value, 100 * gain.low, 100 * gain.high) for ref, gain in below])
    yield (
        f"Beside {BASELINE} there, {label} is better in {above}, worse in {len(below)} and undecided in "
        f"{len(paired) - len(below) - above} of {plural(len(paired), 'cell')}, by paired 95 % intervals"
        f"{'; worse: ' * bool(below)}{places}."
    )


@dataclass(frozen=True)
class Difference:
    """One of our numbers beside one of the paper's."""

    ref: CellRef  # the cell
    metric: str  # of it
    number: PaperNumber  # the paper's

    @property
    def points(self) -> float:
        """Ours less the paper's, the farther one where it prints two."""
        return self.number.difference(100 * self.ref.cell.metrics[self.metric].value)

    @property
    def is_large(self) -> bool:
        """True if it is more than two points."""
        return abs(self.points) > NEAR

    def __str__(self) -> str:
        way = "above" if self.points > 0 else "below"
        other = ", other source" if self.ref.outcome.protocol == ProtocolName.OTHER_DATA else ""
        ours = percent_text(self.ref.cell.metrics[self.metric])
        farther = ", the farther of the two" if len(self.number.values) > 1 else ""
        return f"{self.ref.name}{other} {ours}, {abs(self.points):.1f} points {way} the paper's {self.number}{farther}"


def differences(results: Results, label: str) -> tuple[Difference, ...]:
    """Returns all numbers of one detector that have one of the paper's beside them."""
    refs = [ref for protocol in COMPARED for ref in results.cells(protocol, detector=label)]
    numbers = ((ref, metric, results.beside(ref, metric)) for ref in refs for metric in METRICS)
    return tuple(Difference(ref, metric, number) for ref, metric, number in numbers if number)


def _beside_paper(results: Results, label: str) -> Iterator[str]:
    """A sentence per metric: which numbers lie more than two points from the paper's."""
    known = differences(results, label)
    if not known:
        yield f"The paper's tables by attack have no numbers beside which those of {quote(label)} could stand."
    for metric, name in METRICS.items():
        of_metric = [each for each in known if each.metric == metric]
        far = sorted((each for each in of_metric if each.is_large), key=lambda each: -abs(each.points))
        if of_metric:
            places = f": {join([str(each) for each in far], '; ')}" if far else ""
            share = f"{len(far)} of {plural(len(of_metric), 'number')}"
            yield f"{name} of {quote(label)}: more than {NEAR:.0f} points from the paper in {share}{places}."
