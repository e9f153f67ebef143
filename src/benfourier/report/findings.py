"""How far our numbers lie from the paper's, in sentences that follow from records of the ledger."""

from collections.abc import Iterator
from dataclasses import dataclass

from benfourier.report.paper import CITATION, SLIPS, PaperNumber
from benfourier.report.registry import sentences
from benfourier.report.results import ACCURACY, AUROC, COMPARED, CellRef, Results
from benfourier.report.table import join, percent_text, plural, quote
from benfourier.store.vocabulary import ProtocolName

NEAR = 2.0  # points; a number farther from the paper's is a difference
METRICS = {AUROC: "AUROC", ACCURACY: "Accuracy"}


@sentences("paper", section="paper")
def paper(results: Results) -> Iterator[str]:
    """Yields the source of the paper's numbers, and what look like slips in it."""
    yield f"Numbers of the paper: {CITATION}."
    yield from (f"Probably a slip in it: {slip}." for slip in SLIPS)


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


@sentences("beside-paper", section="paper")
def beside_paper(results: Results) -> Iterator[str]:
    """Yields a sentence per metric: which numbers of the paper's mbf lie more than two points from the paper's."""
    label = results.paper_mbf
    known = differences(results, label) if label else ()
    if label and not known:
        yield f"The paper's tables by attack have no numbers beside which those of {quote(label)} could stand."
    for metric, name in METRICS.items():
        of_metric = [each for each in known if each.metric == metric]
        far = sorted((each for each in of_metric if each.is_large), key=lambda each: -abs(each.points))
        if of_metric:
            places = f": {join([str(each) for each in far], '; ')}" if far else ""
            share = f"{len(far)} of {plural(len(of_metric), 'number')}"
            yield f"{name} of {quote(str(label))}: more than {NEAR:.0f} points from the paper in {share}{places}."
