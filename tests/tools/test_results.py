"""docs/results.md: what is in it, and which of our numbers stand beside the paper's."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benfourier.errors import StoreError
from benfourier.report.detection_tables import rate_cells
from benfourier.report.paper import all_cells
from benfourier.report.registry import build
from benfourier.report.results import Results
from benfourier.store.records import AttackSummary, Outcome, Record, Run
from tests.report.ledgers import Maker, searched, several
from tests.tools.roots import root, with_notes
from tests.tools.test_docs import few
from tools.docs import main
from tools.experiments import CHANCE, Comparison, Experiment, compare, has_cell
from tools.notes import Note, closest
from tools.results import load, page, worst_case_lines

VGG19 = "cifar10-vgg19"
MAHALANOBIS = '[[difference]]\nexperiment = "cifar10"\ndetector = "mahalanobis"\nwhy = "Ours *sees* more layers."\n'


def experiment(records: Iterable[Record], paper: str | None = None) -> Experiment:
    return Experiment("x", Results.from_records(records, paper))


def covered(each: Experiment) -> list[tuple[str, str]]:
    """Tables and databases of the paper that have a counterpart there."""
    return sorted({(c.place["table"], c.place["database"]) for c in all_cells() if has_cell(each, c.place)})


def large(each: Experiment) -> list[Comparison]:
    return [comparison for comparison in compare(each) if comparison.is_large]


def fresh(folder: Path) -> str:
    return page(load(folder))


def on_resnet(records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        yield replace(record, network={"name": "cifar-resnet20"}) if isinstance(record, Run) else record


def with_rates(records: Iterable[Record]) -> Iterator[Record]:
    """CW at 0.01, BIM as R-PGD at a given step of 0.03, R-PGD at its own step, DeepFool as CW beyond the boundary."""
    attacks: dict[str, tuple[str, dict[str, Any]]] = {
        "cw-l2": ("cw-l2", {"lr": 0.01, "confidence": 0.0}),
        "bim": ("r-pgd", {"eps": 0.3, "step": 0.03}),
        "r-pgd": ("r-pgd", {"eps": 0.3, "step": None}),
        "deepfool": ("cw-l2", {"lr": 0.03, "confidence": 5.0}),
    }
    for record in records:
        if isinstance(record, AttackSummary) and record.attack in attacks:
            method, options = attacks[record.attack]
            yield replace(record, method=method, options=options)
        elif isinstance(record, Outcome) and record.method == "c1c2":
            yield replace(record, options={"criteria": "c1"})
        else:
            yield record


def near(points: float) -> Iterator[Record]:
    """Records in which mbf has the paper's AUROC, less so many points under bim."""
    paper = {"bim": 99.6 - points, "r-pgd": 99.4, "deepfool": 96.9, "cw-l2": 99.6}
    for record in Maker(rows=40).records():
        if isinstance(record, Outcome) and record.method == "mbf" and record.protocol == "non-transfer":
            (cell,) = record.cells
            value = paper[cell.attack] / 100
            auroc = replace(cell.metrics["auroc"], value=value, low=value - 0.001, high=value + 0.001)
            yield replace(record, cells=(replace(cell, metrics={**cell.metrics, "auroc": auroc}),))
        else:
            yield record


def test_numbers_stand_beside_those_of_the_paper(tmp_path: Path) -> None:
    text = fresh(root(tmp_path / "p", cifar10=Maker(rows=40).records()))
    (row,) = re.findall(r"\*\*AUROC, %\*\* \(ours \\\| paper\)\n\n.*\n.*\n\| mbf \| (.*?) \| ", text)
    assert re.fullmatch(r"\**[\d.]+\**( ▼)? \\\| 99\.6", row)


def test_every_table_of_the_paper_is_linked_or_not_computed_yet(tmp_path: Path) -> None:
    text = fresh(root(tmp_path / "p", cifar10=Maker(rows=40).records()))
    rows = dict(re.findall(r"^\| (\w[^|]*?) \| (.*) \|$", text.split("## Every table")[1], flags=re.MULTILINE)[:12])
    assert rows["Another attack, AUROC"].startswith("[all 64](#cifar10) | not computed yet | ")
    assert rows["KS, H2, pairs of sources"].startswith("[all 6](#cifar10) | not computed yet")
    assert rows["Another source of images, AUROC"].startswith("– | – | not computed yet | not computed yet")
    assert rows["Beside Defense-GAN, AUROC"] == "– | – | – | – | not computed yet | –"


def test_differences_without_a_reason_are_listed_as_such(tmp_path: Path) -> None:
    text = fresh(root(tmp_path / "p", cifar10=Maker(rows=40).records()))
    assert re.search(r"\*\*Differences above two points\*\*: \d+ of \d+ numbers\.", text)
    assert re.search(r"Not explained yet\.\*\* \(.*lid [+-]\d+\.\d", text)


def test_a_difference_is_chance_only_if_the_papers_number_lies_inside_the_interval() -> None:
    known = large(experiment(Maker(rows=40).records()))
    for each in known:
        inside = all(100 * each.ours.low <= value <= 100 * each.ours.high for value in each.paper.values)
        assert (each.reason(()) == CHANCE) == inside
    assert {each.reason(()) for each in known} == {CHANCE, ""}


def test_one_note_explains_a_whole_detector(tmp_path: Path) -> None:
    text = fresh(with_notes(root(tmp_path / "p", cifar10=few()), MAHALANOBIS))
    (line,) = [line for line in text.splitlines() if "Ours *sees* more layers." in line]
    assert re.search(r"\(mahalanobis [+-]\d+\.\d to [+-]\d+\.\d in \d cells\)", line)
    assert "lid" not in line
    (other,) = [line for line in text.splitlines() if CHANCE in line]
    assert "lid " in other
    assert "mahalanobis" not in other


def test_the_note_that_names_most_counts() -> None:
    wide, narrow = (
        Note("a", {"detector": ("lid",)}, "wide"),
        Note("b", {"detector": ("lid",), "attack": ("bim",)}, "narrow"),
    )
    assert closest([wide, narrow], {"detector": "lid", "attack": "bim"}) is narrow
    assert closest([wide, narrow], {"detector": "lid", "attack": "deepfool"}) is wide
    assert closest([wide, narrow], {"detector": "kd-bu", "attack": "bim"}) is None


@pytest.mark.parametrize(
    ("notes", "complaint"),
    [
        (MAHALANOBIS.replace("cifar10", "svhn"), r"difference\[0\] .* points to no difference above two points"),
        ('[[lacking]]\ntable = "ks-h1"\ndatabase = "cifar10"\nwhy = "x"', r"lacking\[0\] .* points to no cell of the"),
        ('[[lacking]]\ntabel = "ks-h1"\nwhy = "x"', r"lacking\[0\] has 'tabel'; allowed: attack, "),
        ('[[lacking]]\ntable = "ks-h1"', r"lacking\[0\] has no reason"),
        ('[experiments.cifar100]\nabout = "x"', "experiment 'cifar100'; there are: cifar10"),
        ('[experiments.cifar10]\npaper = "cifar"', "paper is 'cifar'; allowed: cifar10, "),
        ("[[lacking", "it is no TOML"),
    ],
)
def test_a_note_that_points_to_nothing_is_refused(tmp_path: Path, notes: str, complaint: str) -> None:
    folder = with_notes(root(tmp_path / "p", cifar10=few()), notes)
    with pytest.raises(StoreError, match=complaint):
        load(folder)
    assert main(["--root", str(folder)]) == 4


def test_reasons_for_lacking_cells_stand_below_the_table(tmp_path: Path) -> None:
    reason = '[[lacking]]\ndatabase = "imagenet-vgg16"\nwhy = "VGG-16 takes two weeks on two cores."\n'
    text = fresh(with_notes(root(tmp_path / "p", cifar10=few()), reason))
    assert text.count("VGG-16 takes two weeks on two cores.") == 1
    assert "| none\N{NO-BREAK SPACE}¹ |" in text


def test_another_network_can_stand_without_the_paper(tmp_path: Path) -> None:
    notes = '[experiments.other]\npaper = "none"\nabout = "Not a network of the paper."\n'
    text = fresh(with_notes(root(tmp_path / "p", other=few()), notes))
    assert "Not a network of the paper." in text
    assert "Differences above two points" not in text
    assert "(#other)" not in text


@pytest.mark.parametrize("kinds", [(Run,), (Run, AttackSummary)])
def test_a_ledger_that_has_just_begun_makes_a_page(tmp_path: Path, kinds: tuple[type[Record], ...]) -> None:
    begun = (record for record in Maker().records() if isinstance(record, kinds))
    assert "lid-cifar10, 82.0% accurate" in fresh(root(tmp_path / "p", cifar10=begun))


def test_cells_far_from_the_paper_are_counted_and_named(tmp_path: Path) -> None:
    far, close = (fresh(root(tmp_path / str(points), cifar10=near(points))) for points in (3.0, 1.0))
    assert "within 2 points in 3 of 4 cells; farther: cifar10, bim (-3.0).\n" in far
    assert "within 2 points in 4 of 4 cells.\n" in close


def test_what_was_found_by_hand_stands_among_the_first_sentences(tmp_path: Path) -> None:
    notes = '[experiments.cifar10]\nshort = "What was found by hand."\n'
    text = fresh(with_notes(root(tmp_path / "p", cifar10=Maker(rows=40).records()), notes))
    assert "\n- What was found by hand.\n" in text.split("| data, network")[0]


def test_another_network_than_the_papers_counts_for_nothing() -> None:
    each = experiment(on_resnet(Maker(rows=40).records()))
    assert (each.database, list(compare(each)), covered(each)) == ("none", [], [])


def test_an_experiment_on_another_network_can_stand_beside_c1c2(tmp_path: Path) -> None:
    ledgers = root(tmp_path / "p", c1c2=on_resnet(with_rates(several())))
    text = fresh(with_notes(ledgers, '[experiments.c1c2]\npaper = "cifar10-vgg19"\n'))
    assert "**AUROC beside C1&amp;C2t/u, %**" in text
    assert "| [4 of 40](#c1c2), 36 not computed yet |" in text
    assert re.search(r"Differences above two points\*\*: \d of 4 numbers", text)


def test_given_learning_rates_and_steps_stand_beside_c1c2_and_no_others() -> None:
    table = build(experiment(with_rates(Maker(rows=40).records()), VGG19).results).tables["c1c2"]
    values = {row.name: [entry.value is not None for entry in row.entries] for row in table.rows}
    assert (table.columns[1], table.columns[6]) == ("cw at 0.01", "pgd at 0.03")
    assert values["c1c2:c1"] == values["mbf"] == [place in (1, 6) for place in range(8)]
    assert not any(values["c1c2"])


def test_only_an_experiment_for_it_stands_beside_c1c2() -> None:
    records = list(with_rates(Maker(rows=40).records()))
    beside = experiment(records, VGG19)
    assert covered(beside) == [("c1c2", VGG19), ("running-time", VGG19)]
    places = [cell.place for cell in all_cells() if cell.place["table"] == "running-time"]
    assert [place["detector"] for place in places if has_cell(beside, place)] == ["mbf"], "C1 alone is not C1&C2t/u"
    for other in (None, "none"):
        each = experiment(records, other)
        assert rate_cells(each.results) == ()
        assert VGG19 not in [database for _, database in covered(each)]


def test_beside_c1c2_stands_mbf_with_the_papers_settings() -> None:
    each = experiment(with_rates(several()), VGG19)
    cells = [cell for cell in rate_cells(each.results) if cell.auroc and cell.detector == "mbf"]
    assert {cell.label for cell in cells} == {"mbf, paper"}
    assert "mbf is “mbf, paper”" in build(each.results).tables["c1c2"].notes[-1]


def test_an_effort_of_defense_gan_is_covered_by_its_own_trials_only() -> None:
    each = experiment(searched((100, 5), (60, 2)))
    places = [cell.place for cell in all_cells() if cell.place["table"] == "defense-gan"]
    own = [place for place in places if has_cell(each, place)]
    assert {(place["detector"], place.get("effort")) for place in own} == {("defense-gan", "100 × 5"), ("mbf", None)}
    assert len(own) == 8


def test_an_effort_whose_trial_is_missing_is_not_covered() -> None:
    missing, records = ("defense-gan (100, 5)", ("bim",)), searched((100, 5), (100, 2))
    each = experiment(r for r in records if not isinstance(r, Outcome) or (r.detector, r.fitted) != missing)
    places = [cell.place for cell in all_cells() if cell.place["table"] == "defense-gan"]
    own = [place for place in places if place["attack"] == "bim" and has_cell(each, place)]
    assert [place.get("effort", "") for place in own] == ["100 × 2", ""]


def test_differences_name_the_effort_that_they_are_measured_to() -> None:
    detectors = {each.detector for each in large(experiment(searched((100, 2), (60, 2))))}
    assert "defense-gan (100, 2) beside 100 × 2 in the paper" in detectors
    assert "defense-gan (60, 2) beside 200 × 10 in the paper" in detectors


def test_other_settings_of_mbf_are_not_counted_against_the_papers() -> None:
    one, many = experiment(Maker(rows=40).records()), experiment(several())
    assert len(list(compare(many))) == len(list(compare(one)))
    labels = {each.place["detector"] for each in compare(many)}
    assert {label for label in labels if "mbf" in label or "paper" in label} == {"mbf, paper"}


def test_the_first_table_has_each_database_once(tmp_path: Path) -> None:
    ledgers = root(tmp_path / "p", a=several(), b=several(), photos=several())
    text = fresh(with_notes(ledgers, '[experiments.photos]\npaper = "imagenet-alexnet"\n'))
    first = text.split("## One detector")[0]
    assert re.findall(r"^\| (\S+), .*? \| `mbf, paper` \|", first, flags=re.MULTILINE) == [
        "cifar10",
        "imagenet-alexnet",
    ]
    assert first.count("`mbf` in the paper") == first.count("`max-softmax` |") == 2


def worst_of(values: dict[str, float]) -> Experiment:
    """Detectors by name and what they were fitted to, with that worst AUROC."""

    def changed() -> Iterator[Record]:
        for record in Maker(rows=40).records():
            if isinstance(record, Outcome) and record.protocol in ("mixed", "strength-transfer"):
                name = f"{record.detector} {record.protocol} {len(record.fitted)}"
                worst = replace(record.overall["worst-auroc"], value=values.get(name, 0.2))
                yield replace(record, overall={**record.overall, "worst-auroc": worst})
            else:
                yield record

    return experiment(changed())


def test_the_best_worst_case_over_all_attacks_comes_first() -> None:
    cases = experiment(Maker(rows=60).records()).cases
    assert [case.worst.value for case in cases] == sorted((case.worst.value for case in cases), reverse=True)
    assert "defense-gan" not in [case.outcome.detector for case in cases], "it was not tested on all attacks"


def test_the_best_worst_case_may_be_that_of_a_detector_fitted_to_fixed_strengths() -> None:
    each = worst_of({"lid strength-transfer 4": 0.8, "kd-bu mixed 8": 0.7, "mbf strength-transfer 1": 0.6})
    rows = [[part.strip() for part in line.split("|")[2:4]] for line in worst_case_lines([each])][2:]
    assert rows[:2] == [["**lid**", "all fixed strengths"], ["kd-bu", "all attacks"]]
    assert sorted(rows[2:]) == [["max-softmax", "nothing"], ["mbf", "all attacks"]]


def test_only_the_main_settings_of_an_ablation_are_in_the_table_of_worst_cases() -> None:
    rows = [line.split("|")[2].strip() for line in worst_case_lines([experiment(several())])][2:]
    assert {"mbf", "mbf, paper", "max-softmax"} <= {row.strip("*") for row in rows}
    assert "paper, γ = scale" not in rows
