"""The first sentences of docs/results.md, and the reasons below its first table."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benfourier.report.gathering import gather
from benfourier.store.records import Outcome, Record
from tests.report.ledgers import ATTACKS, Maker
from tests.tools.roots import noted, page, root
from tools.results.__main__ import main
from tools.results.experiments import Experiment
from tools.results.glance import glance
from tools.results.notes import read_notes
from tools.results.summary import summary

SHORT = '[experiments.cifar10]\nshort = "What was found by hand."\n'
WHY = '[[difference]]\nexperiment = "cifar10"\nmethod = "mbf"\nwhy = "Fewer images."\n'


def near(points: float) -> Iterator[Record]:
    """Records in which mbf has the paper's AUROC, 99.6 and so on, less so many points under bim."""
    paper = {"bim": 99.6 - points, "r-pgd": 99.4, "deepfool": 96.9, "cw-l2": 99.6}
    for record in Maker(rows=40).records():
        if isinstance(record, Outcome) and record.method == "mbf" and record.protocol == "non-transfer":
            (cell,) = record.cells
            value = paper[cell.attack] / 100
            auroc = replace(cell.metrics["auroc"], value=value, low=value - 0.001, high=value + 0.001)
            yield replace(record, cells=(replace(cell, metrics={**cell.metrics, "auroc": auroc}),))
        else:
            yield record


def test_cells_far_from_the_paper_are_counted_and_named(tmp_path: Path) -> None:
    nothing = read_notes(tmp_path / "none.toml")
    far, close = (next(glance([Experiment("cifar10", gather(near(points)))], nothing)) for points in (3.0, 1.0))
    assert far.endswith("within 2 points in 3 of 4 cells; farther: cifar10, bim (-3.0).")
    assert close.endswith("within 2 points in 4 of 4 cells.")


def test_what_was_found_by_hand_stands_among_the_first_sentences(tmp_path: Path) -> None:
    folder = noted(root(tmp_path / "p", cifar10=Maker(rows=40).records()), SHORT)
    assert main(["--root", str(folder)]) == 0
    first = page(folder).split("| data, network")[0]
    assert "\n- What was found by hand.\n" in first
    assert "**The number to beat:**" in first


def test_far_cells_of_the_first_table_have_their_reasons_in_the_readme_too(tmp_path: Path) -> None:
    folder = noted(root(tmp_path / "p", cifar10=near(3.0)), WHY)
    assert main(["--root", str(folder)]) == 0
    reasons = r"More than two points from the paper's:\n\n- cifar10, `mbf` under bim \(-3\.0\): Fewer images\.\n\n"
    assert re.search(reasons, (folder / "README.md").read_text(encoding="utf-8"))
    assert re.search(reasons, page(folder))


def test_a_far_cell_without_a_reason_is_said_to_have_none(tmp_path: Path) -> None:
    folder = root(tmp_path / "p", cifar10=near(3.0))
    assert main(["--root", str(folder)]) == 0
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "- cifar10, `mbf` under bim (-3.0): **not explained yet.**" in readme


def test_strengths_are_spoken_of_only_where_there_are_some() -> None:
    every = list(Maker(rows=40).records())
    some = [
        replace(record, cells=tuple(cell for cell in record.cells if cell.attack in ATTACKS))
        if isinstance(record, Outcome)
        else record
        for record in every
        if not (isinstance(record, Outcome) and record.protocol == "strength-transfer")
    ]
    for records, words in ((every, "for all attacks and strengths: "), (some, "for all attacks: ")):
        said = [sentence for sentence in summary(Experiment("x", gather(records))) if "One detector" in sentence]
        assert len(said) == 1
        assert words in said[0]
