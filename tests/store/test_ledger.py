"""Ledgers: what goes in comes out, and a killed run does no harm."""

import json
import math
import os
import resource
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from benfourier.errors import StoreError
from benfourier.store import ledger
from benfourier.store.ledger import LedgerWriter, read, records
from benfourier.store.records import RECORDS, Cell, Estimate, Failure, Outcome, Picture, Record, Scores

ESTIMATE = Estimate(0.5, 0.25, math.nan)
ROC = np.array([0.5, math.inf], np.float32)
SCORES = Scores("s", "k", "mnist-5k", "bim", ("a", "b"), (0, 1), ROC, 2 * ROC, ROC)
OUTCOME = Outcome(
    key="k",
    inputs="i",
    protocol="mixed",
    detector="mbf",
    method="mbf",
    options={"orders": 16, "layers": ["a"]},
    fitted=("bim",),
    source="mnist-5k",
    fit_sources=2,
    folds=5,
    cells=(Cell("bim", "mnist-5k", 2, {"auroc": ESTIMATE}, ROC), Cell("cw-l2", "mnist-5k", 1, note="too few")),
    overall={},
    thresholds={"5%": 0.1},
    calibration=200,
    seconds={"fit": 1.0},
    seed=0,
)
FAILURE = Failure("f", "mbf on bim", "no")
SECOND = """
import os, sys
from benfourier.store.ledger import LedgerWriter
from benfourier.store.records import Failure
with LedgerWriter(sys.argv[1]) as writer:
    pass
"""
TURNS = """
import sys, time
from benfourier.errors import StoreError
from benfourier.store.ledger import LedgerWriter
from benfourier.store.records import Failure
for turn in range(20):
    while True:
        try:
            with LedgerWriter(sys.argv[1]) as writer:
                writer.add(Failure(f"{sys.argv[2]}{turn}", "t", "e"))
            break
        except StoreError as error:
            assert "is writing to this ledger" in str(error)
            time.sleep(0.001)
"""
HEADER = b'{"record": "ledger", "schema": 2}\n'


def append(path: Path, *added: Record) -> None:
    with LedgerWriter(path) as writer:
        for record in added:
            writer.add(record)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "l.jsonl"


@pytest.mark.parametrize("content", [b'{"my": "only copy"}', b"\x89PNG", b'{"record', b'{"record": "ledger", "sch'])
def test_only_half_a_line_of_a_ledger_is_cut_off(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    if content.startswith(b'{"record'):
        append(path, FAILURE)
        assert list(records(path)) == [FAILURE]
        return
    with pytest.raises(StoreError, match="this is no ledger, and stays as it is"):
        append(path, FAILURE)
    with pytest.raises(StoreError, match="this is no ledger"):
        list(records(path))
    assert path.read_bytes() == content


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "l.jsonl"
    append(path, OUTCOME, SCORES)
    outcome, scores = read(path)
    assert isinstance(outcome, Outcome)
    assert str(outcome.cells[0].metrics["auroc"]) == str(ESTIMATE)
    assert outcome.cells[0].roc is not None
    assert outcome.cells[0].roc.tolist() == ROC.tolist()
    assert outcome.cells[0].roc.dtype == np.float32
    assert outcome.cells[1] == OUTCOME.cells[1]
    assert (outcome.options, outcome.fitted) == (OUTCOME.options, OUTCOME.fitted)
    assert (outcome.thresholds, outcome.inputs) == (OUTCOME.thresholds, "i")
    assert isinstance(scores, Scores)
    assert (scores.outcome, scores.ids, scores.folds) == (SCORES.outcome, SCORES.ids, SCORES.folds)
    assert scores.noisy.tolist() == SCORES.noisy.tolist()
    assert scores.noisy.dtype == np.float32


def test_estimates_are_three_numbers_with_six_digits(path: Path) -> None:
    append(path, replace(OUTCOME, overall={"worst-auroc": Estimate(2 / 3, 1e-9 / 3, math.nan)}))
    assert '"overall": {"worst-auroc": [0.666667, 3.33333e-10, "nan"]}' in path.read_text(encoding="utf-8")


def test_the_last_record_of_a_key_counts(path: Path) -> None:
    append(path, *(Failure("f", "t", error) for error in ("first", "second")), OUTCOME)
    failure, outcome = read(path)
    assert failure == Failure("f", "t", "second")
    assert isinstance(outcome, Outcome)


def test_half_a_line_is_left_out_and_cut_off_before_the_next(path: Path) -> None:
    append(path, FAILURE)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"record": "fail' + b"x" * 100_000)
    assert read(path) == (FAILURE,)
    append(path, Failure("g", "t", "e"))
    assert read(path) == (FAILURE, Failure("g", "t", "e"))
    assert path.read_bytes().startswith(whole + b'{"record": "failure"')


def test_a_ledger_of_nothing_but_half_a_line_is_begun_anew(path: Path) -> None:
    path.write_bytes(b"{")
    append(path, FAILURE)
    assert read(path) == (FAILURE,)
    assert path.read_bytes().startswith(HEADER)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: it is no JSON"),
        ('{"record": NaN}', "line 3: it is no JSON .NaN is no number"),
        ("[]", "line 3: it holds None; known records: run, inputs, attack"),
        ('{"record": "secret"}', "it holds 'secret'"),
        ('{"record": ["run"]}', "it holds .'run'.; known records"),
        ('{"record": "attack", "key": "k", "remaining": "read"}', "'read' is no list"),
        ('{"record": "failure", "key": "k"}', "damaged failure"),
        ('{"record": "failure", "key": 1, "trial": "t", "error": "e"}', "1 is no str"),
        ('{"record": "failure", "key": "k", "trial": "t", "error": "e", "more": 1}', "damaged failure"),
        ('{"record": "cost", "key": "k", "detector": "d", "method": "m", "needs": [], "images": 1, "forward_ms": "a"}',
         "'a' is no number"),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named(path: Path, line: str, message: str) -> None:
    append(path, FAILURE)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(StoreError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"record": "run", "key": "k"}', "has schema 1, of benfourier 0.1; this version reads 2; run its plan again"),
        ('{"record": "ledger", "schema": 3}', "has schema 3; this version reads 2; upgrade benfourier"),
        ('{"record": "ledger"}', "has schema None"),
        ("3", "this is no ledger"),
    ],
)
def test_a_ledger_of_another_schema_is_refused_and_stays_as_it_is(path: Path, line: str, message: str) -> None:
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(StoreError, match=message):
        read(path)
    with pytest.raises(StoreError, match=message):
        append(path, FAILURE)
    assert path.read_text(encoding="utf-8") == line + "\n"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_no_ledger_is_said_plainly(path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no ledger; `benfourier evaluate plan.toml` makes one"):
        read(path)


def test_lines_are_plain_json_for_other_programs(path: Path) -> None:
    append(path, Picture("p", "s", "1", "bim", "é", "3", 1.5, math.inf, ("a.png", "b.png", "c.png")))
    header, line = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(header) == {"record": "ledger", "schema": 2}
    content = json.loads(line)
    assert content["record"] == "picture"
    assert (content["label"], content["magnification"], content["files"]) == ("é", "inf", ["a.png", "b.png", "c.png"])


def test_a_record_whose_key_is_there_is_not_added_again(path: Path) -> None:
    for _ in range(2):
        with LedgerWriter(path) as writer:
            writer.add(OUTCOME)
            writer.add(FAILURE)
    assert [type(record).__name__ for record in records(path)] == ["Outcome", "Failure", "Failure"]
    assert writer.keys == {"k"}
    assert writer.added == [FAILURE]


def test_a_second_writer_is_refused_with_the_id_of_the_first(path: Path) -> None:
    with LedgerWriter(path) as writer:
        writer.add(FAILURE)
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", SECOND, str(path)], check=False, capture_output=True, text=True
        )
        assert f"process {os.getpid()} is writing to this ledger" in done.stderr
        writer.add(OUTCOME)
    assert len(list(records(path))) == 2
    append(path, FAILURE)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_lock_of_a_killed_process_does_no_harm(path: Path) -> None:
    code = SECOND.replace("pass", "writer.add(Failure('a', 'b', 'c')); os._exit(9)")
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)  # noqa: S603
    assert done.returncode == 9
    assert len(list(path.parent.iterdir())) == 2
    append(path, FAILURE)
    assert len(list(records(path))) == 2


def test_processes_that_append_at_the_same_time_lose_no_record(path: Path) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", TURNS, str(path), name]) for name in "abc"]  # noqa: S603
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert sorted(record.key for record in records(path)) == sorted(
        f"{name}{turn}" for name in "abc" for turn in range(20)
    )


def test_without_flock_a_file_locks_and_says_what_to_remove(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "HAS_FLOCK", False)
    with LedgerWriter(path) as writer:
        writer.add(FAILURE)
        with pytest.raises(StoreError, match=rf"process {os.getpid()} is writing .* or remove .*\.l\.jsonl\.lock if"):
            append(path, FAILURE)
    append(path, FAILURE)
    assert len(list(records(path))) == 2


def test_a_full_disk_is_said_and_loses_no_record_that_was_there(path: Path) -> None:
    append(path, OUTCOME)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with LedgerWriter(path) as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
        try:
            with pytest.raises(StoreError, match=r"the ledger cannot be written .*; check the folder and space"):
                writer.add(FAILURE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert [record.key for record in records(path)] == ["k"]
        writer.add(FAILURE)  # there is space again
    assert [record.key for record in records(path)] == ["k", "f"]


def test_only_an_open_writer_writes(path: Path) -> None:
    with pytest.raises(StoreError, match="the ledger is not open"):
        LedgerWriter(path).add(FAILURE)


def test_records_with_the_same_question_have_the_same_identity() -> None:
    assert SCORES.identity == replace(SCORES, key="other").identity == ("k", "mnist-5k", "bim")
    assert FAILURE.identity == ("f",)
    assert all(set(kind.question) <= {field.name for field in fields(kind)} for kind in RECORDS.values())


def test_an_outcome_covers_older_ones_with_no_other_cells() -> None:
    small, mixed = replace(OUTCOME, protocol="non-transfer"), replace(OUTCOME, cells=OUTCOME.cells[:1])
    fewer = replace(small, cells=OUTCOME.cells[1:])
    assert small.identity == fewer.identity
    assert small.covers(fewer)
    assert not fewer.covers(small)
    assert mixed.covers(OUTCOME)
    assert replace(mixed, fitted=("bim", "cw-l2")).identity == OUTCOME.identity
