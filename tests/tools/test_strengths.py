"""docs/strengths.md: one detector for every strength."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benfourier.store.records import AttackSummary, Cell, Cost, Outcome, Record
from tests.report.ledgers import Maker
from tests.tools.roots import root
from tools.docs import main


def mixture(lost: float = 0.0) -> Iterator[Record]:
    """Drawn records in which mbf is called views, fits to all attacks are fits to the default mixture, and `lost` is
    what its AUROC under bim lacks of the paper's."""
    for record in Maker(rows=40).records():
        if not isinstance(record, Outcome):
            yield record
            continue
        name = "views" if record.detector == "mbf" else record.detector
        protocol = {"mixed": "mixture"}.get(record.protocol, record.protocol)
        yield replace(record, protocol=protocol, detector=name, method=name, cells=tuple(_cells(record, lost)))


def _cells(outcome: Outcome, lost: float) -> Iterator[Cell]:
    for cell in outcome.cells:
        if outcome.method == "mbf" and outcome.protocol in ("non-transfer", "attack-transfer") and cell.metrics:
            value = 0.999 - lost * (cell.attack == "bim" and outcome.fitted == ("bim",))
            auroc = replace(cell.metrics["auroc"], value=value, low=value - 0.001, high=value + 0.001)
            cell = replace(cell, metrics={**cell.metrics, "auroc": auroc})
        yield cell


@pytest.fixture(scope="module", name="project")
def project_of_two_ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = root(tmp_path_factory.mktemp("project"), {"cifar10-resnet20": mixture(lost=0.05), "choices": mixture()})
    assert main(["--root", str(folder)]) == 0
    return folder


def page(folder: Path) -> str:
    return (folder / "docs" / "strengths.md").read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_first_table_has_every_detector_and_no_development_images(project: Path) -> None:
    rows = re.findall(r"^\| .* \| `(.+?)` \|", section(page(project), "In short"), flags=re.MULTILINE)
    assert rows[0] == "views"
    assert len(rows) == len(set(rows)) == 7


def test_ledgers_of_choices_stand_under_how_it_was_chosen(project: Path) -> None:
    before, after = page(project).split("## How it was chosen")
    assert "results/choices.jsonl" in after
    assert "results/choices.jsonl" not in before


def test_cells_below_the_papers_are_named(project: Path) -> None:
    text = section(page(project), "Beside the paper")
    below = re.search(r"in (\d+) of (\d+) cells", text)
    assert below is not None
    assert int(below[2]) - int(below[1]) == 1
    assert "Below: cifar10-resnet20, bim → bim (-4.7)." in text


def test_the_table_of_costs_has_every_timed_detector(project: Path) -> None:
    rows = re.findall(
        r"^\| .*\| `(.+?)` \| ([\d.]+) \| ([\d.]+) \|$", section(page(project), "Cost"), flags=re.MULTILINE
    )
    assert {name for name, *_ in rows} == {cost.detector for cost in mixture() if isinstance(cost, Cost)}
    assert all(float(passes) >= 1 for _, _, passes in rows)


def test_all_links_of_the_page_lead_to_headings_or_files(project: Path) -> None:
    text = page(project)
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    headings = {heading.lower().replace(" ", "-") for heading in re.findall("^##+ (.+)$", text, flags=re.MULTILINE)}
    assert {link[1:] for link in links if link.startswith("#")} <= headings
    files = {link for link in links if not link.startswith("#")} - {"results.md"}
    assert files
    assert [link for link in files if not (project / "docs" / link).is_file()] == []


def test_the_readme_has_a_row_per_network_and_the_picture(project: Path) -> None:
    text = (project / "README.md").read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert len(re.findall(r"^\| cifar10, ", text, flags=re.MULTILINE)) == 1
    assert (project / "docs" / "figures" / "worst-case.svg").is_file()


def test_numbers_of_the_readme_beside_its_table_are_those_of_the_ledgers(project: Path) -> None:
    text = (project / "README.md").read_text(encoding="utf-8")
    outcomes = [each for each in mixture() if isinstance(each, Outcome) and each.protocol == "mixture"]
    for outcome in outcomes:
        assert f"{outcome.detector} {100 * outcome.overall['worst-auroc'].value:.1f} %" in text
    (views,) = [outcome.overall for outcome in outcomes if outcome.detector == "views"]
    assert f"it rejects {100 * views['fpr-misclassified@5%'].value:.0f} % of the images that the network itself" in text
    (calls,) = [each.calls for each in mixture() if isinstance(each, AttackSummary) and each.attack == "deepfool"]
    assert f"| {float(f'{calls:.2g}'):,.0f} (`deepfool`) |" in text
