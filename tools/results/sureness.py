"""AUROC of the sources that the network is surest of: what its doubtful images cost."""

from collections.abc import Iterator, Mapping

import numpy as np

from benfourier.evaluation.intervals import estimate
from benfourier.evaluation.metrics import auroc, over_folds
from benfourier.evaluation.sample import Sample
from benfourier.report.counterparts import papers_mbf
from benfourier.report.entries import percent
from benfourier.report.results import ALONE, MBF, TRIVIAL
from benfourier.report.table import MISSING, NOTHING, Entry, Row, Table
from benfourier.store.records import Estimate, Scores
from tools.results.drawing import MOST
from tools.results.experiments import Experiment
from tools.slim import QUANTILE

ByCell = Mapping[tuple[str, str], Scores]
SHARES = (1.0, 0.95, 0.9, 0.75, 0.5)
LEAST = 30  # sources; of fewer nothing is said
NOTE = (
    f"Sources are ranked by {TRIVIAL} of the clean image; clean, noisy and adversarial twins of the others are left "
    "out. Detectors are those of the table above, fitted to all sources."
)


def sure_tables(experiment: Experiment) -> Iterator[Table]:
    """Yields one table; nothing if the ledger has no scores of single images, or not of the trivial detector."""
    scores, results = single_scores(experiment), experiment.results
    attacks = tuple(attack for attack in attacks_of(experiment, scores) if (TRIVIAL, attack) in scores)
    methods = {outcome.detector: outcome.method for outcome in results.outcomes}
    many = len(results.detectors) > MOST
    mine = [label for label in results.detectors if label == MBF or (methods[label] == MBF and not many)]
    asked = (papers_mbf(results), *mine, *(label for label in results.detectors if label == TRIVIAL))
    rows = [
        Row(f"{label}, {'all' if share == 1 else f'surest {share:.0%}'}", tuple(_entry(found) for found in cells))
        for label in dict.fromkeys(label for label in asked if label)
        for share in SHARES
        if any(cells := [_auroc(scores, label, attack, share) for attack in attacks])
    ]
    if rows:
        title = "AUROC of the sources that the network is surest of, %"
        yield Table("sure", title, "detector, sources", attacks, tuple(rows), (NOTE,))


def single_scores(experiment: Experiment) -> ByCell:
    """Returns scores of single images by detector and attack; where only quantiles are left, there are none."""
    return {
        (outcome.detector, cell.attack): cell.scores
        for outcome in experiment.results.of(ALONE, experiment.source)
        for cell in outcome.cells
        if cell.scores is not None and not any(name.startswith(QUANTILE) for name in cell.scores.ids)
    }


def attacks_of(experiment: Experiment, scores: ByCell) -> tuple[str, ...]:
    """Returns the attacks that there are scores of, in the order of all tables."""
    known = {attack for _, attack in scores}
    return tuple(attack for attack in experiment.results.attacks if attack in known)


def _auroc(scores: ByCell, label: str, attack: str, share: float) -> Estimate | None:
    ours, doubts = scores.get((label, attack)), scores[TRIVIAL, attack]
    doubt = dict(zip(doubts.ids, doubts.clean, strict=True))
    if ours is None or not set(ours.ids) <= doubt.keys():
        return None
    ranked = np.argsort([doubt[name] for name in ours.ids], kind="stable")
    kept = ranked[: round(share * len(ranked))]
    if len(kept) < LEAST:
        return None
    columns = [np.asarray(column)[kept] for column in (ours.clean, ours.noisy, ours.adversarial)]
    names = tuple(ours.ids[row] for row in kept)
    sample = Sample(np.concatenate(columns).astype(float), np.repeat([False, False, True], len(kept)), names * 3)
    return estimate(over_folds(auroc, np.tile(np.array(ours.folds)[kept], 3)), sample)


def _entry(found: Estimate | None) -> Entry:
    return Entry(NOTHING, emphasis=MISSING) if found is None else percent(found)
