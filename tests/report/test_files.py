"""Reports from and to files."""

from pathlib import Path

import pytest

import benfourier as bf
from benfourier.errors import OptionError, StoreError
from tests.report.ledgers import Maker, write


@pytest.fixture(scope="module", name="ledger")
def small_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("ledger"), list(Maker(rows=30, layers=("soft-max",)).records()))


def test_a_ledger_becomes_a_report_for_an_audience(ledger: Path) -> None:
    full, short = bf.read_report(ledger), bf.read_report(ledger, audience="terminal")
    assert set(short.tables) < set(full.tables)
    with pytest.raises(OptionError, match="audience is 'everyone'; allowed: terminal"):
        bf.read_report(ledger, audience="everyone")


def test_an_empty_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(StoreError, match="there are no results in this ledger"):
        bf.read_report(tmp_path / "empty.jsonl")


def test_a_report_is_written_in_two_formats_into_a_new_folder(ledger: Path, tmp_path: Path) -> None:
    report = bf.read_report(ledger, audience="terminal")
    bf.write_report(report, tmp_path / "new" / "r.md", ledger, format="markdown")
    assert (tmp_path / "new" / "r.md").read_text(encoding="utf-8").startswith("# Detection of adversarial images")
    bf.write_report(report, tmp_path / "new" / "r.html", ledger)
    assert (tmp_path / "new" / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_ledger_is_not_replaced_and_other_formats_are_refused(ledger: Path, tmp_path: Path) -> None:
    report = bf.read_report(ledger, audience="terminal")
    with pytest.raises(OptionError, match="this is the ledger"):
        bf.write_report(report, ledger, ledger, format="markdown")
    with pytest.raises(OptionError, match="format is 'pdf'; allowed: html, markdown"):
        bf.write_report(report, tmp_path / "r.pdf", ledger, format="pdf")
