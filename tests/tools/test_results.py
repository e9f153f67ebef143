"""docs/results.md from ledgers."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benfourier.errors import StoreError
from benfourier.report.gathering import gather
from benfourier.store.records import Crafted, KsResult, Outcome, Record, Run
from tests.report.ledgers import Maker, pictures
from tests.tools.roots import noted, page, root
from tools.results.__main__ import ROOT, main, up_to_date
from tools.results.differences import CHANCE, differences, reason
from tools.results.experiments import Experiment
from tools.results.facts import pictures as shown_pictures
from tools.results.notes import Note, closest
from tools.results.page import written
from tools.results.universal import HOLDS, holding, to_beat, universal_table, universals

MAHALANOBIS = '[[difference]]\nexperiment = "cifar10"\ndetector = "mahalanobis"\nwhy = "Ours *sees* more layers."\n'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one experiment."""
    folder = root(tmp_path_factory.mktemp("project"), cifar10=Maker(rows=40).records())
    assert main(["--root", str(folder)]) == 0
    return folder


def few() -> Iterator[Record]:
    """Records that make no figure but the ROC curves."""
    for record in Maker(rows=30).records():
        if isinstance(record, Run | KsResult):
            yield record
        if (
            isinstance(record, Outcome)
            and record.protocol == "non-transfer"
            and record.method in ("lid", "mahalanobis")
        ):
            yield replace(record, cells=tuple(replace(cell, scores=None) for cell in record.cells))


def fresh(folder: Path) -> str:
    return written(folder / "experiments" / "results", folder / "experiments" / "notes.toml").page


def test_the_page_of_the_project_is_what_its_ledgers_say() -> None:
    now = written(ROOT / "experiments" / "results", ROOT / "experiments" / "notes.toml")
    assert up_to_date(ROOT, now), "write it again with `python -m tools.results`"


def test_numbers_stand_beside_those_of_the_paper_with_interval_and_difference(made: Path) -> None:
    (row,) = re.findall(r"\*\*AUROC, %\*\* \(ours \\\| paper, difference\)\n\n.*\n.*\n\| mbf \| (.*?) \|", page(made))
    ours, paper, points = re.match(
        r"\**([\d.]+)\**[ ▼]* \([\d.]+ to [\d.]+\) \\\| ([\d.]+), ([+-][\d.]+)", row
    ).groups()  # type: ignore[union-attr]
    assert paper == "99.6"
    assert float(ours) - 99.6 == pytest.approx(float(points), abs=0.11)  # both are rounded


def test_every_table_of_the_paper_is_linked_or_not_computed_yet(made: Path) -> None:
    rows = dict(
        re.findall(r"^\| (\w[^|]*?) \| (.*) \|$", page(made).split("## Every table")[1], flags=re.MULTILINE)[:12]
    )
    assert rows["Another attack, AUROC"].startswith("[all 64](#cifar10--attack-transfer) | not computed yet | ")
    assert rows["KS, H2, pairs of sources"].startswith("[all 6](#cifar10--ks) | not computed yet")
    assert rows["Another source of images, AUROC"].startswith("– | – | not computed yet | not computed yet")
    assert rows["Beside Defense-GAN, AUROC"] == "– | – | – | – | not computed yet | –"


@pytest.mark.parametrize("name", ["results.md", "results/cifar10.md"])
def test_all_links_lead_somewhere(made: Path, name: str) -> None:
    path = made / "docs" / name
    text = path.read_text(encoding="utf-8")
    links = [link.split("#") for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    local = {anchor for file, *anchors in links if not file for anchor in anchors}
    assert local <= set(re.findall(r'<a id="([^"]+)">', text))
    files = {file for file, *_ in links if file} - {"report.md", "evaluation.md", "detectors.md"}  # not in this folder
    assert len(files) > 5
    assert [file for file in files if not (path.parent / file).is_file()] == []


def test_the_page_of_an_experiment_has_what_the_short_one_leaves_out(made: Path) -> None:
    short, whole = page(made), (made / "docs" / "results" / "cifar10.md").read_text(encoding="utf-8")
    rates, lids = "AUPR, rates of detection and of false alarms", r"\*\*AUROC of lid, %.*\n\n(?:\|.*\n)+"
    assert rates in whole
    assert rates not in short
    (table,) = re.findall(lids, whole)
    assert table in short, "it has numbers of the paper"
    assert len(short.split("## cifar10")[1]) < len(whole)


def test_figures_are_small_and_whole(made: Path) -> None:
    figures = sorted((made / "docs" / "figures").glob("results-*.svg"))
    titles = [re.search("<title>(.*?)</title>", path.read_text(encoding="utf-8")) for path in figures]
    assert [title[1].split(",")[0] for title in titles if title] == [
        "Transfer between attacks", "Features of cifar10", "Features of cifar10",
        "ROC curves", "ROC curves", "AUROC over strength",
    ]  # fmt: skip
    assert all(path.stat().st_size < 300_000 for path in figures)
    assert all("var(--" not in path.read_text(encoding="utf-8") for path in figures)


def test_differences_without_a_reason_are_listed_as_such(made: Path) -> None:
    assert re.search(r"Not explained yet.*\(\d+ cells\)", page(made))
    assert re.search(r"- non-transfer, AUROC, lid: .*[a-z] [+-]\d+\.\d \(\d+\.\d % \(", page(made))


def test_a_difference_is_chance_only_if_the_papers_number_lies_inside_the_interval() -> None:
    found = differences(Experiment("x", gather(Maker(rows=40).records())))
    for each in found:
        low, high, paper = (float(number) for number in re.findall(r"[\d.]+", each.words)[1:4])
        edge = min(abs(paper - low), abs(paper - high)) < 0.06  # what is shown is rounded
        assert edge or (reason(each, ()) == CHANCE) == (low <= paper <= high)
    assert {reason(each, ()) for each in found} == {CHANCE, ""}


def test_one_note_explains_a_whole_detector(tmp_path: Path) -> None:
    folder = noted(root(tmp_path / "p", cifar10=few()), MAHALANOBIS)
    text = fresh(folder)
    mine, others = text.split("Ours *sees* more layers.")[1].split("</details>", 1)
    assert "non-transfer, AUROC, mahalanobis: " in mine
    assert "lid: " not in mine
    assert "non-transfer, AUROC, mahalanobis: " not in others
    assert "non-transfer, AUROC, lid: " in others


def test_the_note_that_names_most_counts() -> None:
    wide, near = (
        Note("a", {"detector": ("lid",)}, "wide"),
        Note("b", {"detector": ("lid",), "attack": ("bim",)}, "near"),
    )
    assert closest([wide, near], {"detector": "lid", "attack": "bim"}) is near
    assert closest([wide, near], {"detector": "lid", "attack": "deepfool"}) is wide
    assert closest([wide, near], {"detector": "kd-bu", "attack": "bim"}) is None


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
    folder = noted(root(tmp_path / "p", cifar10=few()), notes)
    with pytest.raises(StoreError, match=complaint):
        fresh(folder)
    assert main(["--root", str(folder)]) == 4


def test_reasons_for_lacking_cells_stand_below_the_table(tmp_path: Path) -> None:
    reason = '[[lacking]]\ndatabase = "imagenet-vgg16"\nwhy = "VGG-16 takes two weeks on two cores."\n'
    text = fresh(noted(root(tmp_path / "p", cifar10=few()), reason))
    assert text.count("VGG-16 takes two weeks on two cores.") == 1
    assert "| none\N{NO-BREAK SPACE}¹ |" in text


def test_another_network_can_stand_without_the_paper(tmp_path: Path) -> None:
    told = '[experiments.other]\npaper = "none"\nabout = "Not a network of the paper."\n'
    text = fresh(noted(root(tmp_path / "p", other=few()), told))
    assert "Not a network of the paper." in text
    assert "differences above two points" not in text
    assert "(#other--non-transfer)" not in text


def test_the_readme_shows_mbf_the_paper_and_the_trivial_detector(made: Path) -> None:
    text = (made / "README.md").read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "|  | `mbf` in the paper | 99.6 | 99.4 | 96.9 | 99.6 |" in text
    assert re.search(r"\| cifar10, lid-cifar10, 82.0% accurate \| `mbf` \| \d+\.\d \(", text)
    assert "| `max-softmax` | " in text


def test_without_ledgers_there_is_a_page_and_nothing_in_the_readme(tmp_path: Path) -> None:
    folder = root(tmp_path / "p", quickstart=Maker(rows=40).records())
    before = (folder / "README.md").read_text(encoding="utf-8")
    assert main(["--root", str(folder)]) == 0
    assert (folder / "README.md").read_text(encoding="utf-8") == before
    assert "No experiment has been run yet." in page(folder)


@pytest.mark.parametrize("kinds", [(Run,), (Run, Crafted)])
def test_a_ledger_that_has_just_begun_makes_a_page(tmp_path: Path, kinds: tuple[type[Record], ...]) -> None:
    begun = (record for record in Maker().records() if isinstance(record, kinds))
    text = fresh(root(tmp_path / "p", cifar10=begun))
    assert "No trial of mbf is finished yet." in text
    assert "Network: lid-cifar10, 82.0% accurate" in text


def test_a_page_that_says_something_else_is_noticed(tmp_path: Path) -> None:
    folder = root(tmp_path / "p", cifar10=few())
    assert main(["--root", str(folder), "--check"]) == 1
    assert main(["--root", str(folder)]) == 0
    assert main(["--root", str(folder), "--check"]) == 0
    good = page(folder)
    (folder / "docs" / "results.md").write_text(good.replace("87.9", "87.8"), encoding="utf-8")
    assert main(["--root", str(folder), "--check"]) == 1
    assert main(["--root", str(folder)]) == 0
    (folder / "docs" / "results" / "old.md").write_text("of no ledger", encoding="utf-8")
    assert main(["--root", str(folder), "--check"]) == 1
    assert main(["--root", str(folder)]) == 0
    assert not (folder / "docs" / "results" / "old.md").exists()


def test_a_figure_that_no_ledger_makes_is_noticed_and_removed(tmp_path: Path) -> None:
    folder = root(tmp_path / "p", cifar10=few())
    assert main(["--root", str(folder)]) == 0
    old = folder / "docs" / "figures" / "results-old.svg"
    old.parent.mkdir(exist_ok=True)
    old.write_text("old", encoding="utf-8")
    assert main(["--root", str(folder), "--check"]) == 1
    assert main(["--root", str(folder)]) == 0
    assert not old.exists()


@pytest.mark.parametrize(
    ("source", "shown"),
    [("cifar10", True), ("svhn", False), ("imagenet8", False), ("nips17", True), ("nips17 + imagenet8", False)],
)
def test_only_images_that_may_be_published_are_shown(tmp_path: Path, source: str, shown: bool) -> None:
    maker = Maker(source=source)
    lines = "\n".join(shown_pictures(Experiment("x", gather(pictures(tmp_path, maker))), "results"))
    assert ('<img src="results/bim-0-clean.png"' in lines) == shown
    assert ("Photographs, made smaller: a photographer" in lines) == shown


def test_the_best_worst_case_over_all_attacks_comes_first() -> None:
    found = universals(Experiment("x", gather(Maker(rows=60).records())))
    assert [each.worst.value for each in found] == sorted((each.worst.value for each in found), reverse=True)
    assert "defense-gan" not in [each.outcome.detector for each in found], "it was not tested on all attacks"


def test_it_is_said_in_one_sentence_where_a_detector_holds_at_every_strength() -> None:
    found = Experiment("x", gather(Maker(rows=60).records()))
    best = universals(found)[0]
    (sentence,) = holding([found])
    told = f"x ({best}: {100 * best.worst.value:.1f} % ("
    assert told in sentence.split("Not even")[best.worst.value < HOLDS]
    assert f"under {best.attack}" in sentence
    assert list(holding([Experiment("y", gather(few()))])) == []


def worst_of(source: str, values: dict[str, float]) -> Experiment:
    """Detectors by name and what they were fitted to, with that worst AUROC."""

    def changed() -> Iterator[Record]:
        for record in Maker(source=source, rows=40).records():
            if isinstance(record, Outcome) and record.protocol in ("mixed", "strength-transfer"):
                whom = f"{record.detector} {record.protocol} {len(record.fitted)}"
                worst = replace(record.overall["worst-auroc"], value=values.get(whom, 0.2))
                yield replace(record, overall={**record.overall, "worst-auroc": worst})
            else:
                yield record

    return Experiment(source, gather(changed()))


def test_the_best_worst_case_may_be_that_of_a_detector_fitted_to_fixed_strengths() -> None:
    found = worst_of("cifar10", {"lid strength-transfer 4": 0.8, "kd-bu mixed 8": 0.7, "mbf strength-transfer 1": 0.6})
    rows = [[part.strip() for part in line.split("|")[2:4]] for line in universal_table([found])][2:]
    assert rows[:2] == [["**lid**", "all fixed strengths"], ["kd-bu", "all attacks"]]
    assert sorted(rows[2:]) == [["max-softmax", "nothing"], ["mbf", "all attacks"]]
    assert "cifar10 (lid fitted to all fixed strengths: 80.0 %" in next(holding([found]))


def test_the_number_to_beat_is_the_best_of_all_settings_on_the_data_that_is_worst_for_it() -> None:
    one = worst_of("cifar10", {"lid mixed 8": 0.9, "kd-bu mixed 8": 0.7, "mahalanobis mixed 8": 0.65})
    two = worst_of("svhn", {"lid mixed 8": 0.4, "kd-bu mixed 8": 0.6, "mahalanobis mixed 8": 0.8})
    (sentence,) = to_beat([one, two])
    assert "mahalanobis fitted to all attacks has the best worst case: 65.0 %" in sentence
    assert "of the 10 settings that were tried on all of cifar10 with lid-cifar10, svhn with lid-cifar10, " in sentence
    assert "on cifar10 with lid-cifar10, and it catches all attacks on 61.0 %" in sentence
    assert list(to_beat([Experiment("y", gather(few()))])) == []


def test_the_page_begins_with_the_table_of_the_readme(made: Path) -> None:
    table = re.search(r"(\| data, network .*?)\n\n", (made / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert table is not None
    assert table[1] in page(made).split("## One detector for all attacks", maxsplit=1)[0]
