"""Ledgers small enough to be published."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benfourier.report.registry import build
from benfourier.report.results import Results
from benfourier.store.ledger import read
from benfourier.store.records import Failure, Picture, Scores
from tests.report.ledgers import ATTACKS, Maker, pictures, write
from tools.publish import main, may_be_shown, publish


def test_scores_of_single_images_are_left_out_and_curves_stay(tmp_path: Path) -> None:
    scores = np.zeros(2, np.float32)
    single = Scores("s", "o", "cifar10", "bim", ("a", "b"), (0, 0), scores, scores, scores)
    whole, out = write(tmp_path, [*Maker(rows=40).records(), single]), tmp_path / "out" / "small.jsonl"
    assert main([str(whole), str(out)]) == 0
    assert not any(isinstance(record, Scores) for record in read(out))
    assert "roc-1" in [figure.id for figure in build(Results.from_records(read(out))).figures]


def test_all_tables_are_the_same(tmp_path: Path) -> None:
    whole, out = write(tmp_path, Maker(rows=40).records()), tmp_path / "small.jsonl"
    publish(whole, out)
    assert build(Results.from_records(read(out))).tables == build(Results.from_records(read(whole))).tables


def test_outcomes_that_were_answered_anew_are_left_out(tmp_path: Path) -> None:
    maker, out = Maker(rows=40), tmp_path / "small.jsonl"
    old, new = (maker.outcome("mixed", "lid", ATTACKS, tested) for tested in (ATTACKS[:2], ATTACKS))
    publish(write(tmp_path, [replace(old, key="old"), new]), out)
    (left,) = read(out)
    assert left.key == new.key


def test_a_ledger_that_is_not_there_is_one_line_of_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.jsonl"), str(tmp_path / "out.jsonl")]) == 4
    assert "there is no ledger" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_only_pictures_that_may_be_published_are_copied(tmp_path: Path) -> None:
    for source in ("cifar10", "svhn"):
        maker, home = Maker(rows=40, source=source), tmp_path / source
        home.mkdir()
        whole = write(home, [*maker.costs(), *pictures(home, maker)])
        publish(whole, tmp_path / f"{source}-out" / "small.jsonl")
    assert (tmp_path / "cifar10-out" / "bim-0-clean.png").is_file()
    assert [path.name for path in (tmp_path / "svhn-out").iterdir()] == ["small.jsonl"]
    assert not any(isinstance(record, Picture) for record in read(tmp_path / "svhn-out" / "small.jsonl"))


def test_folders_of_a_machine_are_left_out(tmp_path: Path) -> None:
    failed = Failure("broken", "lid on bim", "no file /some/where/x.npz; see 1/255")
    publish(write(tmp_path, [failed]), tmp_path / "small.jsonl")
    (failure,) = [record for record in read(tmp_path / "small.jsonl") if isinstance(record, Failure)]
    assert failure.error == "no file x.npz; see 1/255"


@pytest.mark.parametrize(
    ("source", "shown"),
    [("cifar10", True), ("svhn", False), ("imagenet8", False), ("nips17", True), ("nips17 + imagenet8", False)],
)
def test_only_images_whose_licence_allows_it_may_be_shown(tmp_path: Path, source: str, shown: bool) -> None:
    picture = next(pictures(tmp_path, Maker(source=source)))
    assert may_be_shown(picture) == shown
