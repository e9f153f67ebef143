"""Ledgers: what goes in comes out, and a killed run does no harm."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benfourier.errors import StoreError
from benfourier.store.ledger import Ledger, read
from benfourier.store.records import Cell, Estimate, Failure, Outcome, Picture, Scores

ESTIMATE = Estimate(0.5, 0.25, math.nan)
SCORES = Scores(("a", "b"), (0, 1), *(np.array([k, math.inf], np.float32) for k in range(3)))
OUTCOME = Outcome(
    key="k",
    protocol="mixed",
    detector="mbf",
    method="mbf",
    options={"orders": 16, "layers": ["a"]},
    fitted=("bim",),
    source="mnist-5k",
    fit_sources=2,
    folds=5,
    cells=(Cell("bim", "mnist-5k", 2, {"auroc": ESTIMATE}, SCORES), Cell("cw-l2", "mnist-5k", 1, note="too few")),
    overall={},
    thresholds={"5%": 0.1},
    calibration=200,
    seconds={"fit": 1.0},
    seed=0,
    versions={"torch": "2"},
    digests={},
)
FAILURE = Failure("f", "mbf on bim", "no")


@pytest.mark.parametrize("content", [b'{"my": "only copy"}', b"\x89PNG", b'{"record', b'{"record": "failure", "key'])
def test_only_half_a_line_of_a_ledger_is_cut_off(content: bytes, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.path.write_bytes(content)
    if content.startswith(b'{"record'):
        ledger.append(FAILURE)
        assert list(ledger.records()) == [FAILURE]
        return
    with pytest.raises(StoreError, match="this is no ledger, and stays as it is"):
        ledger.append(FAILURE)
    with pytest.raises(StoreError, match="this is no ledger"):
        list(ledger.records())
    assert ledger.path.read_bytes() == content


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new" / "l.jsonl")
    ledger.append(OUTCOME)
    (found,) = read(ledger.path)
    assert isinstance(found, Outcome)
    assert str(found.cells[0].metrics["auroc"]) == str(ESTIMATE)
    assert found.cells[1] == OUTCOME.cells[1]
    assert (found.options, found.fitted, found.thresholds) == (OUTCOME.options, OUTCOME.fitted, OUTCOME.thresholds)
    scores = found.cells[0].scores
    assert scores is not None
    assert (scores.ids, scores.folds) == (SCORES.ids, SCORES.folds)
    assert scores.noisy.tolist() == SCORES.noisy.tolist()
    assert scores.noisy.dtype == np.float32


def test_the_last_record_of_a_key_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    for error in ("first", "second"):
        ledger.append(Failure("f", "t", error))
    ledger.append(OUTCOME)
    failure, outcome = read(ledger.path)
    assert failure == Failure("f", "t", "second")
    assert isinstance(outcome, Outcome)


def test_half_a_line_is_passed_over_and_cut_off_before_the_next(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.append(FAILURE)
    whole = ledger.path.read_bytes()
    ledger.path.write_bytes(whole + b'{"record": "fail' + b"x" * 100_000)
    assert read(ledger.path) == (FAILURE,)
    ledger.append(Failure("g", "t", "e"))
    assert read(ledger.path) == (FAILURE, Failure("g", "t", "e"))
    assert ledger.path.read_bytes().startswith(whole + b'{"record": "failure"')


def test_a_ledger_of_nothing_but_half_a_line_is_begun_anew(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.path.write_bytes(b"{")
    ledger.append(FAILURE)
    assert read(ledger.path) == (FAILURE,)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2: it is no JSON"),
        ("[]", "line 2: it holds None; known records: run, crafted"),
        ('{"record": "secret"}', "it holds 'secret'"),
        ('{"record": "failure", "key": "k"}', "damaged failure"),
        ('{"record": "failure", "key": 1, "trial": "t", "error": "e"}', "1 is no str"),
        ('{"record": "failure", "key": "k", "trial": "t", "error": "e", "more": 1}', "damaged failure"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.append(FAILURE)
    with ledger.path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(StoreError, match=told):
        read(ledger.path)


def test_no_ledger_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no ledger; `benfourier evaluate plan.toml` makes one"):
        read(tmp_path / "l.jsonl")


def test_lines_are_plain_json_for_other_programs(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    ledger.append(Picture("p", "s", "1", "bim", "é", "3", 1.5, math.inf, ("a.png", "b.png", "c.png")))
    content = json.loads(ledger.path.read_text(encoding="utf-8"))
    assert content["record"] == "picture"
    assert (content["label"], content["magnified"], content["files"]) == ("é", "inf", ["a.png", "b.png", "c.png"])
