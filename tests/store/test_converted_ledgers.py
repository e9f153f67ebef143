"""The committed ledgers, converted from version 0.1: every estimate that its reports showed is still there."""

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benfourier.metrics.ranking import ROC_RATES
from benfourier.metrics.registry import CELL_METRICS, OUTCOME_METRICS
from benfourier.store.ledger import read
from benfourier.store.records import Cost, Estimate, Inputs, NoiseControl, Outcome, Scores
from benfourier.store.vocabulary import MBF, NEEDS, NOISE_CONTROLS, ProtocolName

ROOT = Path(__file__).parents[2]
LEDGERS = sorted((ROOT / "experiments" / "results").glob("*.jsonl"))
GOLDEN = ROOT / "tests" / "golden"


def estimates(path: Path) -> Iterator[Estimate]:
    for record in read(path):
        if isinstance(record, Outcome):
            yield from record.overall.values()
            for cell in record.cells:
                yield from cell.metrics.values()
        elif isinstance(record, NoiseControl):
            yield record.auroc


def golden_estimates(path: Path) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Where each estimate stood in the report, and its value and interval in percent."""
    report: dict[str, Any] = json.loads(gzip.decompress((GOLDEN / f"{path.stem}.json.gz").read_bytes()))
    for section in report["sections"]:
        for table in section["tables"]:
            if section["id"] in set(ProtocolName) or table["id"] == "control":
                for row in table["rows"]:
                    for column, entry in zip(table["columns"], row["entries"], strict=True):
                        if entry["low"] is not None and math.isfinite(entry["low"]):
                            place = f"{table['id']}, {row['name']}, {column}"
                            yield place, (entry["value"], entry["low"], entry["high"])


def test_every_golden_report_has_its_ledger() -> None:
    assert {path.stem for path in LEDGERS} == {path.name.removesuffix(".json.gz") for path in GOLDEN.iterdir()}


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.stem)
def test_every_estimate_of_the_old_report_is_in_the_ledger(path: Path) -> None:
    """Six digits leave a relative error of at most 5e-6."""
    ours = np.array([(each.value, each.low, each.high) for each in estimates(path)]) * 100
    places, theirs = zip(*golden_estimates(path), strict=True)
    assert len(places) > 10
    for place, golden in zip(places, theirs, strict=True):
        close = np.isclose(ours, golden, rtol=5.1e-6, atol=1e-12).all(axis=1)
        assert close.any(), place


@pytest.mark.parametrize("path", LEDGERS, ids=lambda path: path.stem)
def test_converted_ledgers_use_the_words_of_this_version(path: Path) -> None:
    records = read(path)
    inputs = {record.key for record in records if isinstance(record, Inputs)}
    assert not any(isinstance(record, Scores) for record in records)
    for record in records:
        if isinstance(record, Cost):
            assert set(record.needs) <= set(NEEDS)
        elif isinstance(record, NoiseControl):
            assert record.features in NOISE_CONTROLS
        elif isinstance(record, Outcome):
            assert record.inputs in inputs
            assert record.protocol in set(ProtocolName)
            assert "head" in record.options
            assert "classifier" not in record.options
            assert ":" not in record.method
            assert record.method != MBF or record.options["entries"] == "all"
            assert record.overall.keys() <= OUTCOME_METRICS.keys()
            for cell in record.cells:
                assert cell.metrics.keys() <= CELL_METRICS.keys()
                assert cell.roc is None or cell.roc.shape == ROC_RATES.shape
