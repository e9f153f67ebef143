"""The results in a few sentences."""

from collections.abc import Iterator, Sequence

from benfourier.report.gaps import NEAR, Gap, gaps
from benfourier.report.markdown import safe
from benfourier.report.results import ALONE
from benfourier.report.spots import counted, listed, spots
from benfourier.report.words import PLACES, against_trivial
from tools.results.experiments import Experiment
from tools.results.headline import headlined, labels_of
from tools.results.notes import Notes
from tools.results.universal import holding, to_beat

NAME = "mbf with the paper's settings"


def glance(known: Sequence[Experiment], notes: Notes) -> Iterator[str]:
    """Yields sentences: how near the paper, better than the trivial detector or not, notes by hand, one for all."""
    shown = headlined(known)
    mine = {experiment.database: labels_of(experiment)[-1] for experiment in shown}
    near = [
        (each.database, gap)
        for each in shown
        for gap in gaps(each.results, mine[each.database])
        if gap.metric == "auroc" and gap.spot.outcome.protocol == ALONE
    ]
    yield from _beside_paper(near)
    beside = [
        spot for each in shown for spot in spots(each.results, ALONE) if spot.outcome.detector == mine[each.database]
    ]
    if beside:
        yield from map(safe, against_trivial(NAME, beside))
    yield from (notes.short[each.name] for each in known if each.name in notes.short)
    yield from (*holding(known), *to_beat(known))


def _beside_paper(found: Sequence[tuple[str, Gap]]) -> Iterator[str]:
    if found:
        far = sorted((pair for pair in found if abs(pair[1].points) > NEAR), key=lambda pair: -abs(pair[1].points))
        where = listed([f"{database}, {gap.spot.name} ({gap.points:+.1f})" for database, gap in far])
        yield (
            f"{PLACES[ALONE]}, {NAME} has the paper's AUROC within {NEAR:.0f} points in {len(found) - len(far)} of "
            f"{counted(len(found), 'cell')}{f'; farther: {safe(where)}' if far else ''}."
        )
