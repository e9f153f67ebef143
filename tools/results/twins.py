"""AUROC against clean images alone and against noisy ones alone: a detector may take noise for an attack."""

from collections.abc import Iterator

import numpy as np

from benfourier.evaluation.intervals import estimate
from benfourier.evaluation.metrics import auroc, over_folds
from benfourier.evaluation.sample import Sample
from benfourier.report.entries import percent
from benfourier.report.table import MISSING, NOTHING, Entry, Row, Table
from benfourier.store.records import Scores
from tools.results.drawing import MOST
from tools.results.experiments import Experiment
from tools.results.sureness import attacks_of, single_scores

KINDS = ("clean", "noisy")
NOTE = (
    "The AUROC of the table above takes clean and noisy images together. Attacks that share their noise have it in the "
    "median length of their perturbations, so that it is longer than those of some and shorter than those of others. "
    "Below 50: such images score above adversarial ones more often than not."
)


def twin_tables(experiment: Experiment) -> Iterator[Table]:
    """Yields one table; nothing if the ledger has no scores of single images, or those of very many detectors."""
    scores, results = single_scores(experiment), experiment.results
    attacks, columns = attacks_of(experiment, scores), []
    for attack in attacks:
        columns += [f"{attack}, {kind}" for kind in KINDS]
    rows = tuple(
        Row(label, tuple(_entry(scores.get((label, attack)), kind) for attack in attacks for kind in KINDS))
        for label in results.detectors
        if any((label, attack) in scores for attack in attacks)
    )
    if rows and len(results.detectors) <= MOST:
        title = "AUROC against clean images alone, and against noisy ones, %"
        yield Table("twins", title, "detector", tuple(columns), rows, (NOTE,))


def _entry(scores: Scores | None, kind: str) -> Entry:
    if scores is None:
        return Entry(NOTHING, emphasis=MISSING)
    benign = scores.clean if kind == "clean" else scores.noisy
    sample = Sample(
        np.concatenate([benign, scores.adversarial]).astype(float),
        np.repeat([False, True], len(scores.ids)),
        scores.ids * 2,
    )
    return percent(estimate(over_folds(auroc, np.tile(np.array(scores.folds), 2)), sample))
