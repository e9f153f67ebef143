"""How far our numbers lie from the paper's."""

from collections.abc import Iterator
from dataclasses import dataclass

from benfourier.report.paper import Printed
from benfourier.report.results import ALONE, ELSEWHERE, TRANSFER, Results
from benfourier.report.spots import Spot, counted, listed, named, printed, spots, told

NEAR = 2.0  # points; what is farther from the paper is told
METRICS = {"auroc": "AUROC", "accuracy": "Accuracy"}


@dataclass(frozen=True)
class Gap:
    """One of our numbers beside one of the paper's.

    Args:
        spot: the cell.
        metric: of it.
        printed: the paper's number, in percent.
    """

    spot: Spot
    metric: str
    printed: Printed

    @property
    def points(self) -> float:
        """Ours less the paper's, the farther one where it prints two."""
        return self.printed.gap(100 * self.spot.cell.metrics[self.metric].value)

    def __str__(self) -> str:
        way = "above" if self.points > 0 else "below"
        place = f"{self.spot.name}, other source" if self.spot.outcome.protocol == ELSEWHERE else self.spot.name
        ours = told(self.spot.cell.metrics[self.metric])
        farther = ", the farther of the two" if len(self.printed.values) > 1 else ""
        return f"{place} {ours}, {abs(self.points):.1f} points {way} the paper's {self.printed}{farther}"


def gaps(results: Results, label: str) -> tuple[Gap, ...]:
    """Returns all pairs of numbers of one detector."""
    return tuple(
        Gap(spot, metric, number)
        for protocol in (ALONE, TRANSFER, ELSEWHERE)
        for spot in spots(results, protocol)
        if spot.outcome.detector == label
        for metric, number in printed(results, spot).items()
    )


def beside_paper(results: Results, label: str) -> Iterator[str]:
    """Yields a sentence per metric: which numbers lie more than two points from the paper's."""
    found = gaps(results, label)
    if not found:
        yield f"The paper's tables by attack have no numbers beside which those of {named(label)} could stand."
    for metric, name in METRICS.items():
        of_it = [gap for gap in found if gap.metric == metric]
        far = sorted((gap for gap in of_it if abs(gap.points) > NEAR), key=lambda gap: -abs(gap.points))
        if of_it:
            where = f": {listed([str(gap) for gap in far], '; ')}" if far else ""
            count = counted(len(of_it), "number")
            share = f"{len(far)} of {count}"
            yield f"{name} of {named(label)}: more than {NEAR:.0f} points from the paper in {share}{where}."
