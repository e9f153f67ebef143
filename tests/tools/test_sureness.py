"""AUROC of the sources that the network is surest of."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benfourier.report.gathering import gather
from benfourier.store.records import Outcome, Record, Scores
from tests.report.ledgers import ATTACKS, Maker
from tools.results.experiments import Experiment
from tools.results.sureness import LEAST, SHARES, sure_tables
from tools.slim import QUANTILE

MAKER = Maker(rows=200)


def records(folds: int = 1, ids: str = "image/") -> Iterator[Record]:
    for record in MAKER.records():
        if isinstance(record, Outcome):
            cells = [replace(c, scores=changed(c.scores, folds, ids)) if c.scores else c for c in record.cells]
            yield replace(record, cells=tuple(cells))
        else:
            yield record


def changed(scores: Scores, folds: int, ids: str) -> Scores:
    rows = range(len(scores.ids))
    return replace(scores, ids=tuple(f"{ids}{row}" for row in rows), folds=tuple(row % folds for row in rows))


def test_the_least_sure_are_left_out_with_all_their_twins() -> None:
    found = Experiment("x", gather(records()))
    (table,) = sure_tables(found)
    assert table.columns == ATTACKS
    assert [row.name for row in table.rows] == [
        f"{label}, {'all' if share == 1 else f'surest {share:.0%}'}"
        for label in ("mbf", "max-softmax")
        for share in SHARES
    ]
    cells = {
        outcome.detector: outcome.cells[0].scores
        for outcome in found.results.of("non-transfer")
        if outcome.fitted == ("bim",)
    }
    ours, doubts = cells["mbf"], cells["max-softmax"]
    assert ours is not None
    assert doubts is not None
    for share, row in zip(SHARES, table.rows, strict=False):
        kept = np.argsort(doubts.clean)[: round(share * MAKER.rows)]
        scores = np.concatenate([ours.clean[kept], ours.noisy[kept], ours.adversarial[kept]])
        wanted = roc_auc_score(np.repeat([0, 0, 1], len(kept)), scores)
        assert row.entries[0].value == pytest.approx(100 * wanted)


def test_folds_are_judged_apart() -> None:
    (one,), (five,) = (sure_tables(Experiment("x", gather(records(folds)))) for folds in (1, 5))
    assert one.rows[0].entries[0].value != five.rows[0].entries[0].value


def test_nothing_is_said_of_quantiles_or_of_few() -> None:
    assert not list(sure_tables(Experiment("x", gather(records(ids=QUANTILE)))))
    few = Experiment("x", gather(Maker(rows=LEAST + 5).records()))
    (table,) = sure_tables(few)
    assert {row.name for row in table.rows} == {
        f"{label}, {share}" for label in ("mbf", "max-softmax") for share in ("all", "surest 95%", "surest 90%")
    }
