"""Which of our detectors the paper's numbers stand beside."""

from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest

from benfourier.detectors.catalogue import method
from benfourier.report import study_tables
from benfourier.report.counterparts import SETTINGS, known_as, papers_mbf
from benfourier.report.gaps import gaps
from benfourier.report.gathering import gather
from benfourier.report.sections import sections
from benfourier.report.table import Table
from benfourier.store.records import Outcome, Record
from tests.report.ledgers import Maker, searched, several

EFFORTS = ((200, 10), (100, 10), (100, 5), (100, 2))
BIM = (74.4, 68.9, 66.4, 61.2)  # the paper's AUROC of Defense-GAN
OWN = "Of the settings of mbf, only “mbf, paper” has the paper's numbers beside it."


def tables(records: Iterator[Record]) -> dict[str, Table]:
    return {table.id: table for section in sections(gather(records)) for table in section.tables}


def beside(table: Table, place: int = 0) -> dict[str, str]:
    """The paper's numbers in a column."""
    return {row.name.split("\N{NO-BREAK SPACE}")[0]: str(row.entries[place].paper or "") for row in table.rows}


def test_each_defense_gan_stands_beside_the_papers_of_its_own_effort() -> None:
    table = tables(searched(*EFFORTS))["non-transfer-auroc"]
    labels = [f"defense-gan ({steps}, {runs})" for steps, runs in EFFORTS]
    found = beside(table, table.columns.index("bim"))
    assert [found[label] for label in labels] == [str(value) for value in BIM]
    told = "; ".join(f"{s} × {r} beside {label}" for (s, r), label in zip(EFFORTS, labels, strict=True))
    assert f"Iterations × runs of the paper's Defense-GAN: {told}." in table.notes


@pytest.mark.parametrize("order", [EFFORTS, EFFORTS[::-1]])
def test_gaps_are_measured_to_the_same_effort_whatever_ran_last(order: tuple[tuple[int, int], ...]) -> None:
    results = gather(searched(*order))
    for (steps, runs), value in zip(EFFORTS, BIM, strict=True):
        found = gaps(results, f"defense-gan ({steps}, {runs})")
        assert [gap.printed.values for gap in found if gap.spot.cell.attack == "bim"] == [(value,)]


def test_an_effort_that_the_paper_has_not_is_told_beside_its_dearest() -> None:
    notes = tables(searched((60, 2)))["non-transfer-auroc"].notes
    told = "200 × 10 beside defense-gan (60, 2), which has 60 × 2."
    assert f"Iterations × runs of the paper's Defense-GAN: {told}" in notes


def test_the_settings_of_the_papers_mbf_are_those_of_its_preset() -> None:
    options = asdict(method("mbf", preset="paper"))
    assert {name: options[name] for name in options if name not in ("rules", "seed")} == dict(SETTINGS)


def test_the_papers_mbf_is_the_one_with_its_settings() -> None:
    results = gather(several())
    assert papers_mbf(results) == "mbf, paper"
    known = {outcome.detector: known_as(results, outcome) for outcome in results.outcomes}
    assert {label for label in known if known[label] == "mbf"} == {"mbf, paper"}


def test_without_the_papers_settings_it_is_another_one_with_an_svm() -> None:
    records = list(several())
    left = [r for r in records if not (isinstance(r, Outcome) and r.detector in ("mbf, paper", "paper, γ = scale"))]
    assert papers_mbf(gather(left)) == "mbf"
    trees = [r for r in left if not (isinstance(r, Outcome) and r.detector == "mbf")]
    assert papers_mbf(gather(trees)) is None


def test_one_criterion_of_c1c2_is_not_all_of_them() -> None:
    results = gather(Maker(rows=40).records(), "cifar10-vgg19")
    whole = next(outcome for outcome in results.outcomes if outcome.method == "c1c2")
    assert known_as(results, replace(whole, options={"criteria": "all"})) == "c1c2"
    alone = replace(whole, options={"criteria": "c1"})
    assert known_as(results, alone) == "c1c2:c1"
    (costs,) = study_tables.costs(replace(results, outcomes=(alone,)))
    assert beside(costs, 1)["c1c2"] == ""
    (costs,) = study_tables.costs(results)
    assert beside(costs, 1)["c1c2"] == "576.0"


def test_tables_have_the_papers_numbers_beside_its_own_settings_only() -> None:
    found = tables(several())
    for name in ("non-transfer-auroc", "non-transfer-accuracy"):
        numbers = beside(found[name])
        assert [label for label in numbers if "mbf" in label and numbers[label]] == ["mbf, paper"]
        assert OWN in found[name].notes
        assert not any(note.startswith("The paper has none for mbf") for note in found[name].notes)
    times = beside(found["costs"], 1)
    assert [label for label in times if "mbf" in label and times[label]] == ["mbf, paper"]


def test_the_matrix_of_other_settings_says_where_the_papers_numbers_stand() -> None:
    found = tables(several())
    matrices = {table.title: table for name, table in found.items() if name.startswith("attack-transfer-auroc")}
    other, own = (matrices[f"AUROC of {label}, %"] for label in ("mbf", "mbf, paper"))
    assert (other.has_paper, own.has_paper) == (False, True)
    assert OWN in other.notes
    assert "Beside ours: the paper's numbers for cifar10." in own.notes


def test_where_the_paper_has_no_matrix_that_is_said_of_other_settings_too() -> None:
    found = tables(several("mnist-5k"))
    assert "The paper has no such table for mnist." in found["attack-transfer-auroc-1"].notes


def test_sentences_compare_the_papers_settings_only() -> None:
    said = next(section for section in sections(gather(several())) if section.id == "words").said
    assert [line.split(":")[0] for line in said if "from the paper" in line] == [
        "AUROC of “mbf, paper”", "Accuracy of “mbf, paper”",
    ]  # fmt: skip
    assert not any("The paper has no numbers" in line for line in said)
