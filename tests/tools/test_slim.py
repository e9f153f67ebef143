"""Ledgers small enough to be published."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benfourier.report.curves import roc, roc_figures
from benfourier.report.gathering import gather
from benfourier.report.sections import sections
from benfourier.store.ledger import read
from benfourier.store.records import Failure, Outcome, Picture, Scores
from tests.report.ledgers import ATTACKS, Maker, pictures, write
from tools import slim as tool
from tools.slim import main, slim


def scores(ledger: Path) -> Iterator[tuple[str, Scores | None]]:
    for record in read(ledger):
        if isinstance(record, Outcome):
            yield from ((record.protocol, cell.scores) for cell in record.cells)


def test_scores_stay_only_where_roc_curves_are_drawn(tmp_path: Path) -> None:
    whole, out = write(tmp_path, Maker(rows=40).records()), tmp_path / "out" / "small.jsonl"
    assert main([str(whole), str(out)]) == 0
    assert all(found is None for protocol, found in scores(out) if protocol != "non-transfer")
    pairs = [(a, b) for (p, a), (_, b) in zip(scores(whole), scores(out), strict=True) if p == "non-transfer" and a]
    assert len(pairs) == 27
    assert all(b is not None and a.ids == b.ids and np.array_equal(a.adversarial, b.adversarial) for a, b in pairs)


def test_all_tables_are_the_same(tmp_path: Path) -> None:
    whole, out = write(tmp_path, Maker(rows=40).records()), tmp_path / "small.jsonl"
    slim(whole, out)
    assert sections(gather(read(out))) == sections(gather(read(whole)))


def test_a_large_ledger_is_thinned_and_keeps_its_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker(rows=600)
    many = [
        maker.outcome("non-transfer", detector, [attack], [attack]) for detector in ("mbf", "lid") for attack in ATTACKS
    ]
    whole, out = write(tmp_path, many), tmp_path / "small.jsonl"
    slim(whole, out)
    size = out.stat().st_size
    monkeypatch.setattr(tool, "LARGEST", size - 1)
    slim(whole, out)
    assert out.stat().st_size < size
    pairs = [(a, b) for (p, a), (_, b) in zip(scores(whole), scores(out), strict=True) if p == "non-transfer" and a]
    assert all(b is not None and len(b.ids) == len(b.clean) == 200 for _, b in pairs)
    assert all(b is not None and b.ids[0] == "quantile/0" for _, b in pairs)
    # a fold of 120 rows becomes 40: the curve can move by one of 40 rows, and by one of 40 thresholds
    assert max(np.abs(roc(a) - roc(b)).mean() for a, b in pairs if b) < 2 / 40
    assert list(roc_figures(gather(read(out))))


def test_outcomes_that_were_answered_anew_stay_away(tmp_path: Path) -> None:
    maker, out = Maker(rows=40), tmp_path / "small.jsonl"
    old, new = (maker.outcome("mixed", "lid", ATTACKS, tested) for tested in (ATTACKS[:2], ATTACKS))
    slim(write(tmp_path, [replace(old, key="old"), new]), out)
    (left,) = read(out)
    assert left.key == new.key


def test_a_ledger_that_is_not_there_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.jsonl"), str(tmp_path / "out.jsonl")]) == 4
    assert "there is no ledger" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_only_pictures_that_may_be_published_are_copied(tmp_path: Path) -> None:
    for source in ("cifar10", "svhn"):
        maker, home = Maker(rows=40, source=source), tmp_path / source
        home.mkdir()
        whole = write(home, [*maker.costs(), *pictures(home, maker)])
        slim(whole, tmp_path / f"{source}-out" / "small.jsonl")
    assert (tmp_path / "cifar10-out" / "bim-0-clean.png").is_file()
    assert [path.name for path in (tmp_path / "svhn-out").iterdir()] == ["small.jsonl"]
    assert not any(isinstance(record, Picture) for record in read(tmp_path / "svhn-out" / "small.jsonl"))


def test_folders_of_a_machine_are_left_out(tmp_path: Path) -> None:
    failed = Failure("broken", "lid on bim", "no file /some/where/x.npz; see 1/255")
    slim(write(tmp_path, [failed]), tmp_path / "small.jsonl")
    (failure,) = [record for record in read(tmp_path / "small.jsonl") if isinstance(record, Failure)]
    assert failure.error == "no file x.npz; see 1/255"
