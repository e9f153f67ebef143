"""Generated pages, blocks and figures."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benfourier.store.records import KsResult, Outcome, Record, Run
from tests.report.ledgers import Maker
from tests.tools.roots import page, root
from tools import results
from tools.docs import ROOT, fill, main, outdated


@pytest.fixture(scope="module", name="project")
def project_of_one_experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = list(Maker(rows=40).records())
    folder = root(tmp_path_factory.mktemp("project"), cifar10=records, reproduce=records)
    assert main(["--root", str(folder)]) == 0
    return folder


def few() -> Iterator[Record]:
    """Records that make no figure."""
    for record in Maker(rows=30).records():
        if isinstance(record, Run | KsResult):
            yield record
        if (
            isinstance(record, Outcome)
            and record.protocol == "non-transfer"
            and record.method in ("lid", "mahalanobis")
        ):
            yield replace(record, cells=tuple(replace(cell, roc=None) for cell in record.cells))


def test_the_pages_of_the_project_are_what_its_ledgers_say() -> None:
    assert outdated(ROOT, results.load(ROOT)) == [], "write them again with `python -m tools.docs`"


def test_the_results_page_of_the_project_is_short() -> None:
    assert (ROOT / "docs" / "results.md").stat().st_size <= 60_000


def test_a_page_that_says_something_else_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = root(tmp_path / "p", cifar10=few())
    assert main(["--root", str(folder), "--check"]) == 1
    assert main(["--root", str(folder)]) == 0
    assert main(["--root", str(folder), "--check"]) == 0
    text = page(folder)
    (folder / "docs" / "results.md").write_text(text.replace("87.9", "87.8"), encoding="utf-8")
    assert main(["--root", str(folder), "--check"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "docs/results.md"


def test_a_figure_that_no_ledger_makes_is_named_and_removed(tmp_path: Path) -> None:
    folder = root(tmp_path / "p", cifar10=few())
    assert main(["--root", str(folder)]) == 0
    old = folder / "docs" / "figures" / "results-old.svg"
    old.parent.mkdir(exist_ok=True)
    old.write_text("old", encoding="utf-8")
    assert main(["--root", str(folder), "--check"]) == 1
    assert main(["--root", str(folder)]) == 0
    assert not old.exists()


def test_figures_are_small_and_linked(project: Path) -> None:
    figures = sorted((project / "docs" / "figures").glob("results-*.svg"))
    assert [path.name for path in figures] == [
        f"results-cifar10-{figure}-1.svg" for figure in ("roc", "strength", "transfer")
    ]
    assert all(path.stat().st_size < 300_000 for path in figures)
    assert all(f"](figures/{path.name})" in page(project) for path in figures)


def test_all_links_lead_somewhere(project: Path) -> None:
    text = page(project)
    links = [link.split("#") for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    anchors = {anchor for file, *parts in links if not file for anchor in parts}
    assert anchors <= {heading.lower() for heading in re.findall("^## (.+)$", text, flags=re.MULTILINE)}
    pages = {"report.md", "evaluation.md", "detectors.md", "features.md"}  # not in this folder
    files = {file for file, *_ in links if file} - pages
    assert len(files) > 3
    assert [file for file in files if not (project / "docs" / file).is_file()] == []


def test_without_ledgers_there_is_a_page_and_nothing_in_the_readme(tmp_path: Path) -> None:
    folder = root(tmp_path / "p")
    before = (folder / "README.md").read_text(encoding="utf-8")
    assert main(["--root", str(folder)]) == 0
    assert (folder / "README.md").read_text(encoding="utf-8") == before
    assert "No experiment has been run yet." in page(folder)


def test_a_block_is_filled_between_its_markers_and_must_be_there_once() -> None:
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb"
    assert fill(text, "x", "new\n") == "a\n<!-- x -->\nnew\n<!-- /x -->\nb"
    with pytest.raises(ValueError, match="has 0 blocks between <!-- y --> and"):
        fill(text, "y", "new\n")
