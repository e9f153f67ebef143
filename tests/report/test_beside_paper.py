"""Which of our detectors the paper's numbers stand beside."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benfourier.detectors.catalogue import make_method
from benfourier.report import study_tables
from benfourier.report.findings import differences
from benfourier.report.paper import OPTIONS
from benfourier.report.registry import build
from benfourier.report.results import Results
from benfourier.report.table import Table
from benfourier.store.records import Outcome, Record
from tests.report.ledgers import Maker, searched, several

EFFORTS = ((200, 10), (100, 10), (100, 5), (100, 2))
BIM = (74.4, 68.9, 66.4, 61.2)  # the paper's AUROC of Defense-GAN
OWN = "Of the settings of mbf, only “mbf, paper” has the paper's numbers beside it."


def tables(records: Iterator[Record]) -> dict[str, Table]:
    return build(Results.from_records(records)).tables


def beside(table: Table, place: int = 0) -> dict[str, str]:
    """The paper's numbers in a column."""
    return {row.name.split("\N{NO-BREAK SPACE}")[0]: str(row.entries[place].paper or "") for row in table.rows}


def test_each_defense_gan_stands_beside_the_papers_of_its_own_effort() -> None:
    table = tables(searched(*EFFORTS))["non-transfer-auroc"]
    labels = [f"defense-gan ({steps}, {runs})" for steps, runs in EFFORTS]
    numbers = beside(table, table.columns.index("bim"))
    assert [numbers[label] for label in labels] == [str(value) for value in BIM]
    efforts = "; ".join(f"{s} × {r} beside {label}" for (s, r), label in zip(EFFORTS, labels, strict=True))
    assert f"Iterations × runs of the paper's Defense-GAN: {efforts}." in table.notes


@pytest.mark.parametrize("order", [EFFORTS, EFFORTS[::-1]])
def test_differences_are_measured_to_the_same_effort_whatever_ran_last(order: tuple[tuple[int, int], ...]) -> None:
    results = Results.from_records(searched(*order))
    for (steps, runs), value in zip(EFFORTS, BIM, strict=True):
        known = differences(results, f"defense-gan ({steps}, {runs})")
        assert [each.number.values for each in known if each.ref.cell.attack == "bim"] == [(value,)]


def test_an_effort_that_the_paper_does_not_have_stands_beside_its_largest() -> None:
    notes = tables(searched((60, 2)))["non-transfer-auroc"].notes
    effort = "200 × 10 beside defense-gan (60, 2), which has 60 × 2."
    assert f"Iterations × runs of the paper's Defense-GAN: {effort}" in notes


def test_the_settings_of_the_papers_mbf_are_those_of_its_preset() -> None:
    options = make_method("mbf", preset="paper").as_dict()
    assert {name: options[name] for name in OPTIONS} == dict(OPTIONS)


def test_the_papers_mbf_is_the_one_with_its_settings() -> None:
    results = Results.from_records(several())
    assert results.paper_mbf == "mbf, paper"
    known = {outcome.detector: results.paper_detector(outcome) for outcome in results.outcomes}
    assert {label for label in known if known[label] == "mbf"} == {"mbf, paper"}


def test_without_the_papers_settings_it_is_another_one_with_an_svm() -> None:
    records = list(several())
    left = [r for r in records if not (isinstance(r, Outcome) and r.detector in ("mbf, paper", "paper, γ = scale"))]
    assert Results.from_records(left).paper_mbf == "mbf"
    trees = [r for r in left if not (isinstance(r, Outcome) and r.detector == "mbf")]
    assert Results.from_records(trees).paper_mbf is None


def test_one_criterion_of_c1c2_is_not_all_of_them() -> None:
    results = Results.from_records(Maker(rows=40).records(), "cifar10-vgg19")
    whole = next(outcome for outcome in results.outcomes if outcome.method == "c1c2")
    assert results.paper_detector(replace(whole, options={"criteria": "all"})) == "c1c2"
    alone = replace(whole, options={"criteria": "c1"})
    assert results.paper_detector(alone) == "c1c2:c1"
    (costs,) = study_tables.costs(replace(results, outcomes=(alone,)))
    assert beside(costs, 1)["c1c2"] == ""
    (costs,) = study_tables.costs(results)
    assert beside(costs, 1)["c1c2"] == "576.0"


def test_tables_have_the_papers_numbers_beside_its_own_settings_only() -> None:
    shown = tables(several())
    for name in ("non-transfer-auroc", "non-transfer-accuracy"):
        numbers = beside(shown[name])
        assert [label for label in numbers if "mbf" in label and numbers[label]] == ["mbf, paper"]
        assert OWN in shown[name].notes
        assert not any(note.startswith("The paper has none for mbf") for note in shown[name].notes)
    times = beside(shown["costs"], 1)
    assert [label for label in times if "mbf" in label and times[label]] == ["mbf, paper"]


def test_the_matrix_of_other_settings_says_where_the_papers_numbers_stand() -> None:
    shown = tables(several())
    matrices = {table.title: table for name, table in shown.items() if name.startswith("attack-transfer-auroc")}
    other, own = (matrices[f"AUROC of {label}, %"] for label in ("mbf", "mbf, paper"))
    assert (other.has_paper, own.has_paper) == (False, True)
    assert OWN in other.notes
    assert "Beside ours: the paper's numbers for cifar10." in own.notes


def test_a_matrix_that_the_paper_does_not_have_is_noted_for_other_settings_too() -> None:
    shown = tables(several("mnist-5k"))
    assert "The paper has no such table for mnist." in shown["attack-transfer-auroc-1"].notes


def test_sentences_compare_the_papers_settings_only() -> None:
    said = build(Results.from_records(several())).sections[-1].sentences
    assert [line.split(":")[0] for line in said if "from the paper" in line] == [
        "AUROC of “mbf, paper”", "Accuracy of “mbf, paper”",
    ]  # fmt: skip
    assert not any("The paper has no numbers" in line for line in said)
