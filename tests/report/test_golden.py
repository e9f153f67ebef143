"""The reports of all committed ledgers hold every number of version 0.1's reports, kept in tests/golden."""

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benfourier.report import Results, build, render
from benfourier.store.ledger import read

ROOT = Path(__file__).parents[2]
LEDGERS = ROOT / "experiments" / "results"
GOLDEN = ROOT / "tests" / "golden"
TOLERANCE = 5e-6  # relative: ledgers hold estimates with six digits
RENAMED_TABLES = {
    "non-transfer-over": "non-transfer-auroc-gain",
    "tpr-5": "non-transfer-tpr-5",
    "tpr-1": "non-transfer-tpr-1",
    "fpr-clean": "non-transfer-fpr-clean-5",
    "fpr-noisy": "non-transfer-fpr-noisy-5",
    "fpr-misclassified": "non-transfer-fpr-misclassified-5",
    "control": "noise-control",
    "crafted": "attacks",
    "funnel": "remaining",
}
REMOVED_TABLES = {
    "paper-c1c2": "the paper's own numbers; they stand beside ours in the table c1c2, and all of them in paper.csv",
    "paper-defense-gan": "the paper's own numbers; they stand beside ours where both have an effort",
}
RENAMED_COLUMNS = {
    "with the numbers, ms": "with the features, ms",
    "classifier, ms": "head, ms",
    "worst AUROC": "Worst AUROC",
    "MEAD at 5\N{NO-BREAK SPACE}%": "MEAD at 5 %",
    "MEAD at 1\N{NO-BREAK SPACE}%": "MEAD at 1 %",
    "clean, rejected": "Clean images rejected at 5 %",
    "misclassified, rejected": "Misclassified images rejected at 5 %",
}
REMOVED_COLUMNS = {
    ("trials", "options"): "they stand once in the table of detectors",
    ("trials", "reduced"): "it stands once in the table of detectors",
    ("ks-h1", "p, exact"): "too large, as the distribution is fitted to the numbers that are tested",
    ("ks-h1", "p, bootstrap"): "too small for shapes below 0.8; p for any shape is valid",
    ("ks-h1", "bootstrap below 0.05, %"): "the share of such p",
}
RENAMED_ROWS = {  # parts of their names: a kind of features, and keys of plans
    "responses": "activations",
    ".options.classifier": ".options.head",
    "network.until_right": "network.until_all_correct",
    "network.head": "network.new_layers",
}


def golden_tables(name: str) -> dict[str, dict[str, Any]]:
    with gzip.open(GOLDEN / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        return {table["id"]: table for section in json.load(file)["sections"] for table in section["tables"]}


def numbers(table: dict[str, Any]) -> Iterator[tuple[tuple[str, int, str], dict[str, Any]]]:
    """Entries by the row's name, how many rows of that name stand before it, and the column."""
    counts: dict[str, int] = {}
    for row in table["rows"]:
        place = counts[row["name"]] = counts.get(row["name"], -1) + 1
        for column, entry in zip(table["columns"], row["entries"], strict=True):
            yield (row["name"], place, column), entry


def differs(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is not new
    return not math.isclose(old, new, rel_tol=TOLERANCE)


def compare(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    entries = dict(numbers(new))
    for (row, place, column), entry in numbers(old):
        if (old["id"], column) in REMOVED_COLUMNS:
            continue
        name = row
        for part, instead in RENAMED_ROWS.items():
            name = name.replace(part, instead)
        other = entries.get((name, place, RENAMED_COLUMNS.get(column, column)))
        where = f"{old['id']}, {row}, {column}"
        if other is None:
            yield f"{where} is gone"
            continue
        for key in ("value", "low", "high"):
            if differs(entry[key], other[key]):
                yield f"{where}: {key} was {entry[key]}, is {other[key]}"
        if (entry["paper"] or {}).get("values") != list((other["paper"] or {}).get("values", ())) and entry["paper"]:
            yield f"{where}: the paper's number was {entry['paper']}, is {other['paper']}"
        if entry["value"] is None and entry["emphasis"] in ("few", "missing") and entry["text"] != other["text"]:
            yield f"{where}: the text was {entry['text']!r}, is {other['text']!r}"


@pytest.mark.parametrize("name", sorted(path.stem for path in LEDGERS.glob("*.jsonl")))
def test_every_number_of_version_0_1_is_in_the_report(name: str) -> None:
    report = render.report_json(build(Results.from_records(read(LEDGERS / f"{name}.jsonl"))))
    tables = {table["id"]: table for section in report["sections"] for table in section["tables"]}
    lost = []
    for table_id, old in golden_tables(name).items():
        if table_id not in REMOVED_TABLES:
            new = tables.get(RENAMED_TABLES.get(table_id, table_id))
            lost += [f"the table {table_id} is gone"] if new is None else list(compare(old, new))
    assert lost == []
