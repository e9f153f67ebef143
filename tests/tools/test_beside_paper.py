"""Which experiments and detectors stand beside the paper's numbers on docs/results.md."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benfourier.report.gathering import gather
from benfourier.store.records import Crafted, Outcome, Record, Run
from tests.report.ledgers import Maker, searched, several
from tests.tools.roots import noted, root
from tools.results.cells import cells, has
from tools.results.differences import compared, differences
from tools.results.drawing import MOST, drawings
from tools.results.experiments import Experiment
from tools.results.headline import headline
from tools.results.page import written
from tools.results.rivals import rate_tables, rates
from tools.results.summary import summary
from tools.results.universal import universal_table

BESIDE_C1C2 = "cifar10-vgg19"


def experiment(records: Iterable[Record], paper: str | None = None) -> Experiment:
    return Experiment("x", gather(records, paper))


def covered(found: Experiment) -> list[tuple[str, str]]:
    """Tables and databases of the paper that have a like there."""
    return sorted({(place["table"], place["database"]) for place in cells() if has(found, place)})


def without_scores(records: Iterable[Record]) -> Iterator[Record]:
    """Records that make no figure of scores."""
    for record in records:
        if isinstance(record, Outcome):
            yield replace(record, cells=tuple(replace(cell, scores=None) for cell in record.cells))
        elif isinstance(record, Run | Crafted):
            yield record


def on_resnet(records: Iterable[Record]) -> Iterator[Record]:
    for record in records:
        yield replace(record, network={"name": "cifar-resnet20"}) if isinstance(record, Run) else record


def with_rates(records: Iterable[Record]) -> Iterator[Record]:
    """CW at 0.01, BIM as R-PGD at a given step of 0.03, R-PGD at its own step, DeepFool as CW beyond the boundary."""
    given: dict[str, tuple[str, dict[str, Any]]] = {
        "cw-l2": ("cw-l2", {"lr": 0.01, "confidence": 0.0}),
        "bim": ("r-pgd", {"eps": 0.3, "step": 0.03}),
        "r-pgd": ("r-pgd", {"eps": 0.3, "step": None}),
        "deepfool": ("cw-l2", {"lr": 0.03, "confidence": 5.0}),
    }
    for record in records:
        if isinstance(record, Crafted) and record.attack in given:
            method, options = given[record.attack]
            yield replace(record, method=method, options=options)
        elif isinstance(record, Outcome) and record.method == "c1c2":
            yield replace(record, options={"criteria": "c1"})
        else:
            yield record


def test_another_network_than_the_papers_counts_for_nothing() -> None:
    found = experiment(on_resnet(Maker(rows=40).records()))
    assert (found.database, compared(found), covered(found)) == ("none", 0, [])


def test_an_ablation_can_be_kept_from_the_paper(tmp_path: Path) -> None:
    ledgers = root(tmp_path / "p", ablation=without_scores(several()))
    folder = noted(ledgers, '[experiments.ablation]\npaper = "none"\n')
    text = written(folder / "experiments" / "results", folder / "experiments" / "notes.toml").page
    assert "differences above two points" not in text
    assert "(#ablation--non-transfer)" not in text
    assert "of the paper: [" not in text


def test_an_experiment_on_another_network_can_stand_beside_c1c2(tmp_path: Path) -> None:
    ledgers = root(tmp_path / "p", c1c2=without_scores(on_resnet(with_rates(several()))))
    folder = noted(ledgers, '[experiments.c1c2]\npaper = "cifar10-vgg19"\n')
    text = written(folder / "experiments" / "results", folder / "experiments" / "notes.toml").page
    assert "## c1c2: beside C1&amp;C2t/u" in text
    assert "| [4 of 40](#c1c2--c1c2), 36 not computed yet |" in text
    assert re.search(r"\[\d of 4\]\(#c1c2--differences\)", text)


def test_given_learning_rates_and_steps_stand_beside_c1c2_and_no_others() -> None:
    (table,) = rate_tables(experiment(with_rates(Maker(rows=40).records()), BESIDE_C1C2))
    told = {row.name: [entry.value is not None for entry in row.entries] for row in table.rows}
    assert (table.columns[1], table.columns[6]) == ("cw at 0.01", "pgd at 0.03")
    assert told["c1c2:c1"] == told["mbf"] == [place in (1, 6) for place in range(8)]
    assert not any(told["c1c2"])


def test_only_an_experiment_for_it_stands_beside_c1c2() -> None:
    records = list(with_rates(Maker(rows=40).records()))
    beside = experiment(records, BESIDE_C1C2)
    assert covered(beside) == [("c1c2", BESIDE_C1C2), ("running-time", BESIDE_C1C2)]
    times = [place["detector"] for place in cells() if place["table"] == "running-time" and has(beside, place)]
    assert times == ["mbf"], "C1 alone is not C1&C2t/u"
    for other in (None, "none"):
        found = experiment(records, other)
        assert list(rates(found)) == []
        assert BESIDE_C1C2 not in [database for _, database in covered(found)]


def test_beside_c1c2_stands_mbf_with_the_papers_settings() -> None:
    made = experiment(with_rates(several()), BESIDE_C1C2)
    assert {rate.label for rate in rates(made) if rate.auroc and rate.detector == "mbf"} == {"mbf, paper"}
    (table,) = rate_tables(made)
    assert "mbf is “mbf, paper”" in table.notes[-1]


def test_an_effort_of_defense_gan_is_covered_by_its_own_trials_only() -> None:
    found = experiment(searched((100, 5), (60, 2)))
    places = [place for place in cells() if place["table"] == "defense-gan" and has(found, place)]
    assert {(place["detector"], place.get("effort")) for place in places} == {("defense-gan", "100 × 5"), ("mbf", None)}
    assert len(places) == 8


def test_an_effort_whose_trial_is_missing_is_not_covered() -> None:
    missing, records = ("defense-gan (100, 5)", ("bim",)), searched((100, 5), (100, 2))
    found = experiment(r for r in records if not isinstance(r, Outcome) or (r.detector, r.fitted) != missing)
    places = [p for p in cells() if p["table"] == "defense-gan" and p["attack"] == "bim" and has(found, p)]
    assert [place.get("effort", "") for place in places] == ["100 × 2", ""]


def test_differences_name_the_effort_that_they_are_measured_to() -> None:
    rows = {difference.row for difference in differences(experiment(searched((100, 2), (60, 2))))}
    assert "non-transfer, AUROC, defense-gan (100, 2) beside 100 × 2 in the paper" in rows
    assert "non-transfer, AUROC, defense-gan (60, 2) beside 200 × 10 in the paper" in rows


def test_other_settings_of_mbf_are_not_counted_against_the_papers() -> None:
    one, many = experiment(Maker(rows=40).records()), experiment(several())
    assert compared(many) == compared(one)
    labels = {difference.place["detector"] for difference in differences(many)}
    assert {label for label in labels if "mbf" in label or "paper" in label} == {"mbf, paper"}


def test_the_summary_compares_the_papers_settings_and_tells_of_ours() -> None:
    told = list(summary(experiment(several())))
    assert told[0].startswith("Fitted to and tested on the same attack: AUROC of “mbf, paper” ")
    assert any(line.startswith("Fitted to and tested on the same attack, mbf has ") for line in told)
    assert any(line.startswith("Tested on images of another source, mbf has ") for line in told)


def test_the_headline_has_our_settings_then_the_papers_then_the_papers_numbers() -> None:
    rows = re.findall(r"^\| (.*?) ?\| (`m.*?) \| ", headline([experiment(several())]), flags=re.MULTILINE)
    assert [name for _, name in rows] == ["`mbf`", "`mbf, paper`", "`mbf` in the paper", "`max-softmax`"]
    assert [bool(data) for data, _ in rows] == [True, False, False, False]


def test_the_headline_has_each_database_once_and_photos_too() -> None:
    found = [experiment(several(), paper) for paper in ("imagenet-alexnet", None, None)]
    rows = re.findall(r"^\| (\S+), .*? \| `mbf` \|", headline(found), flags=re.MULTILINE)
    assert rows == ["cifar10", "imagenet-alexnet"]


@pytest.mark.parametrize(("source", "shown"), [("cifar10", True), ("mnist-5k", False)])
def test_the_matrix_beside_the_papers_is_not_folded_away(tmp_path: Path, source: str, shown: bool) -> None:
    folder = root(tmp_path / "p", x=without_scores(several(source)))
    text = written(folder / "experiments" / "results", folder / "experiments" / "notes.toml").pages["x.md"]
    before = text[: text.index("**AUROC of mbf, paper, %**")]
    assert (before.count("<details>") == before.count("</details>")) == shown


def test_of_an_ablation_only_the_main_settings_are_in_the_table_of_universal_detectors() -> None:
    found = experiment(without_scores(several("cifar10")))
    rows = [line.split("|")[2].strip() for line in universal_table([found])][2:]
    assert {"mbf", "mbf, paper", "max-softmax"} <= {row.strip("*") for row in rows}
    assert "paper, γ = scale" not in rows


def test_very_many_detectors_make_no_curves() -> None:
    records = list(Maker(rows=40).records())
    many = [
        replace(record, detector=f"setting {number}", key=f"{record.key} {number}")
        for record in records
        for number in range(MOST)
        if isinstance(record, Outcome) and record.detector == "mbf"
    ]
    assert {drawing.figure.section for drawing in drawings(experiment(records))} > {"features"}
    assert {drawing.figure.section for drawing in drawings(experiment([*records, *many]))} == {"features"}
