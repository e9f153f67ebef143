"""Losses by reading fewer entries: paired, by cell and in the mean, and the rule that chooses K."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benfourier.store.ledger import write
from benfourier.store.records import Outcome, Record, Run, Scores
from tests.report.ledgers import Maker
from tools.entries import ALL, COUNTS, cells, mean_loss, publish, qualifies, table

IDS = tuple(f"image {place}" for place in range(200))
FOLDS = tuple(place % 5 for place in range(200))


def ledger(folder: Path, shifts: dict[str, float]) -> Path:
    """A ledger in which adversarial scores lie above benign ones by a shift that depends on the detector."""
    records: list[Record] = []
    maker_records = list(Maker().records())
    run = next(record for record in maker_records if isinstance(record, Run))
    outcome = next(record for record in maker_records if isinstance(record, Outcome))
    attacks = [{"label": "bim", "role": "boundary"}, {"label": "r-pgd 8/255", "role": "strength"}]
    records.append(replace(run, settings={"attacks": attacks}, network={"name": "cifar-resnet20"}))
    fits = [("non-transfer", ("bim",)), ("strength-transfer", ("r-pgd 8/255",)), ("mixed", ("bim", "r-pgd 8/255"))]
    for label, shift in shifts.items():
        for protocol, fitted in fits:
            key = f"{label} {protocol}"
            records.append(replace(outcome, key=key, protocol=protocol, detector=label, fitted=fitted, cells=()))
            for attack in ("bim", "r-pgd 8/255"):
                clean, noisy, adversarial = np.random.default_rng(0).normal(size=(3, 200)).astype(np.float32)
                scores = Scores(f"{key} {attack}", key, "x", attack, IDS, FOLDS, clean, noisy, adversarial + shift)
                records.append(scores)
    path = folder / "experiments" / "entries" / "results" / "cifar10-resnet20.jsonl"
    path.parent.mkdir(parents=True)
    write(path, records)
    return path


SHIFTS = {ALL: 2.0, "8192 entries": 2.0, "4096 entries": 1.99, "2048 entries": 1.5}


def test_a_cell_is_an_attack_with_a_fit_to_itself_or_to_all(tmp_path: Path) -> None:
    network, every = cells(ledger(tmp_path, SHIFTS))
    assert network == "cifar-resnet20"
    assert {(cell.fitted, cell.role, cell.attack) for cell in every} == {
        (fitted, role, attack)
        for fitted in ("one", "all")
        for role, attack in (("boundary", "bim"), ("strength", "r-pgd 8/255"))
    }


def test_losses_are_paired_and_have_intervals(tmp_path: Path) -> None:
    _, every = cells(ledger(tmp_path, SHIFTS))
    same, small, large = (mean_loss(every, f"{count} entries") for count in COUNTS)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    assert 0 < small.low <= small.value <= small.high < 0.003  # the mean of AUROCs that fall by 0.1 points each
    # Φ(2/√2) − Φ(1.5/√2) = 0.921 − 0.856
    assert large.value == pytest.approx(0.066, abs=0.02)
    assert large.low < large.value < large.high


def test_the_rule_takes_counts_with_a_small_mean_and_no_bad_cell(tmp_path: Path) -> None:
    network, every = cells(ledger(tmp_path, SHIFTS))
    assert [qualifies(network, every, count) for count in COUNTS] == [True, True, False]


def test_the_table_names_every_network_and_the_counts_that_meet_the_rule(tmp_path: Path) -> None:
    ledger(tmp_path, SHIFTS)
    text = table(tmp_path)
    assert "| cifar-resnet20 | the same attack | 1 of boundary |" in text
    assert "K = 8192: cifar-resnet20; K = 4096: cifar-resnet20; K = 2048: none." in text


def test_scores_of_other_images_are_refused(tmp_path: Path) -> None:
    path = ledger(tmp_path, SHIFTS)
    text = path.read_text(encoding="utf-8").replace("image 7", "image seven", 1)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="were tested on different images"):
        cells(path)


def test_a_published_ledger_has_the_same_cells_in_less_space(tmp_path: Path) -> None:
    path = ledger(tmp_path, SHIFTS)
    publish(path, tmp_path / "out.jsonl")
    (_, whole), (_, copied) = cells(path), cells(tmp_path / "out.jsonl")
    assert [cell.value for cell in copied] == [cell.value for cell in whole]
    assert (tmp_path / "out.jsonl").stat().st_size < 0.8 * path.stat().st_size
