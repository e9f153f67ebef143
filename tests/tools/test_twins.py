"""AUROC against clean and against noisy images alone."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benfourier.report.gathering import gather
from benfourier.report.table import NOTHING
from tests.report.ledgers import ATTACKS
from tests.tools.test_sureness import records
from tools.results.experiments import Experiment
from tools.results.twins import KINDS, twin_tables
from tools.slim import QUANTILE


def test_each_benign_kind_is_compared_by_itself() -> None:
    found = Experiment("x", gather(records(folds=1)))
    (table,) = twin_tables(found)
    assert table.columns == tuple(f"{attack}, {kind}" for attack in ATTACKS for kind in KINDS)
    entries = {row.name: dict(zip(table.columns, row.entries, strict=True)) for row in table.rows}
    assert entries.keys() == set(found.results.detectors)
    for outcome in found.results.of("non-transfer"):
        (cell,) = outcome.cells
        scores = cell.scores
        if scores is None:  # too few
            assert entries[outcome.detector][f"{cell.attack}, clean"].text == NOTHING
            continue
        for kind, benign in zip(KINDS, (scores.clean, scores.noisy), strict=True):
            labels = np.repeat([0, 1], len(scores.ids))
            wanted = roc_auc_score(labels, np.concatenate([benign, scores.adversarial]))
            assert entries[outcome.detector][f"{cell.attack}, {kind}"].value == pytest.approx(100 * wanted)


def test_nothing_is_said_where_only_quantiles_are_left() -> None:
    assert not list(twin_tables(Experiment("x", gather(records(ids=QUANTILE)))))
