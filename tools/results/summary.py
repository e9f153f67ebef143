"""What the numbers of an experiment say, in a few sentences."""

from collections.abc import Iterator, Sequence

from benfourier.report.counterparts import papers_mbf
from benfourier.report.gaps import METRICS, NEAR, Gap, gaps
from benfourier.report.results import ALONE, ELSEWHERE, MBF, STRENGTH, TRANSFER, Results
from benfourier.report.spots import Spot, counted, named, spots
from benfourier.report.transfer_tables import boundary_attacks
from benfourier.report.words import PLACES, against_trivial, held
from tools.results.experiments import Experiment
from tools.results.universal import universal_sentence

UP = "Fitted to attacks that stop at the boundary and tested at fixed strengths"
DOWN = "Fitted to attacks at a fixed strength and tested on those that stop at the boundary"
SAME = "Fitted to an attack at a fixed strength and tested on the same"


def summary(experiment: Experiment) -> Iterator[str]:
    """Yields where mbf stands: beside the paper, beside max-softmax, across strengths, and fitted to everything."""
    results = experiment.results
    label = mbf_label(results)
    if label is None:
        yield "No trial of mbf is finished yet."
        return
    own = papers_mbf(results) or label
    for protocol in (ALONE, TRANSFER, ELSEWHERE):
        yield from _beside_paper(named(own), protocol, [g for g in gaps(results, own) if _of(g, protocol)])
    near = boundary_attacks(results)
    groups: dict[str, list[Spot]] = {place: [] for place in (PLACES[ALONE], PLACES[ELSEWHERE], UP, DOWN, SAME)}
    for spot in (spot for protocol in (ALONE, ELSEWHERE, STRENGTH) for spot in spots(results, protocol)):
        if spot.outcome.protocol != STRENGTH:
            groups[PLACES[spot.outcome.protocol]].append(spot)
        elif spot.outcome.fitted == (spot.cell.attack,):
            groups[SAME].append(spot)
        elif set(spot.outcome.fitted) <= near:
            groups[UP].append(spot)
        elif spot.cell.attack in near:
            groups[DOWN].append(spot)
    for place, found in groups.items():
        mine = [spot for spot in found if spot.outcome.detector == label]
        if mine:
            yield from held(place, label, mine)
            yield from against_trivial(label, mine)
    yield from universal_sentence(experiment)


def mbf_label(results: Results) -> str | None:
    """Returns the label of plain mbf, or of the first of its settings; None if there is none."""
    methods = {outcome.detector: outcome.method for outcome in results.outcomes}
    labels = [label for label in results.detectors if methods[label] == MBF]
    return MBF if MBF in labels else next(iter(labels), None)


def _of(gap: Gap, protocol: str) -> bool:
    return gap.spot.outcome.protocol == protocol


def _beside_paper(label: str, protocol: str, found: Sequence[Gap]) -> Iterator[str]:
    for metric, name in METRICS.items():
        mine = [gap for gap in found if gap.metric == metric]
        if mine:
            ours = _range([100 * gap.spot.cell.metrics[metric].value for gap in mine])
            paper = _range([value for gap in mine for value in gap.printed.values])
            near = sum(abs(gap.points) <= NEAR for gap in mine)
            twice = any(len(gap.printed.values) > 1 for gap in mine)
            yield (
                f"{PLACES[protocol]}: {name} of {label} {ours}, in the paper {paper}; "
                f"{near} of {counted(len(mine), 'cell')} within {NEAR:.0f} points of it"
                f"{', and of both values where it prints two' if twice else ''}."
            )


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
