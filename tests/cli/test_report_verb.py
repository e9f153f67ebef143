"""`benfourier report` on ledgers made without an evaluation."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benfourier.store import ledger as ledgers
from benfourier.store.records import AttackSummary, Cost
from tests.cli.calling import call
from tests.report.ledgers import Maker, write

Capture = pytest.CaptureFixture[str]
PAGE = Path(__file__).parents[2] / "docs" / "report.md"
SMALL = Maker(rows=30, layers=("soft-max",))
WITHOUT = """
import sys
for name in {blocked}:
    sys.modules[name] = None  # as if it were not installed
from benfourier.cli.main import main
try:
    main({words})
finally:
    print([name for name in ("torch", "numba", "sklearn", "matplotlib", "jinja2") if sys.modules.get(name)])
"""


@pytest.fixture(scope="module", name="ledger")
def small_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("ledger"), list(SMALL.records()))


def without(blocked: list[str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    """What the verb does in an interpreter that lacks some libraries."""
    program = WITHOUT.format(blocked=blocked, words=[str(word) for word in words])
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)  # noqa: S603


def test_tables_are_printed_without_torch_and_without_the_extra(ledger: Path) -> None:
    result = without(["torch", "matplotlib", "jinja2"], "report", ledger)
    assert (result.returncode, result.stderr) == (0, "")
    assert "has the best worst case" in result.stdout
    assert result.stdout.endswith("[]\n")


def test_the_page_is_made_without_torch(ledger: Path, tmp_path: Path) -> None:
    result = without(["torch"], "report", ledger, "--out", tmp_path / "r.html")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("['matplotlib', 'jinja2']\n")
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_a_page_without_the_extra_is_code_3_and_says_what_to_install(
    ledger: Path, tmp_path: Path, missing: str
) -> None:
    result = without([missing], "report", ledger, "--out", tmp_path / "r.html")
    assert result.returncode == 3
    assert f"error: {missing} is not installed" in result.stderr
    assert "pip install 'benfourier[report]'" in result.stderr
    assert not (tmp_path / "r.html").exists()


def test_json_holds_the_same_tables(capsys: Capture, ledger: Path) -> None:
    result = call(capsys, "report", ledger, "--json")
    assert result.code == 0
    ids = [table["id"] for section in result.json["sections"] for table in section["tables"]]
    assert {"non-transfer-auroc", "attack-transfer-accuracy-1", "mixed-overall", "ks-h1", "costs"} <= set(ids)


def test_all_prints_every_table_and_the_short_report_only_the_main_ones(capsys: Capture, ledger: Path) -> None:
    short, full = (call(capsys, "report", ledger, *words).out for words in ((), ("--full",)))
    assert "Worst AUROC under each kind of attack, %" in short
    assert "Milliseconds per image" not in short
    assert "Milliseconds per image" in full
    assert len(short.splitlines()) <= 30 < len(full.splitlines())


def test_markdown_is_written_into_a_new_folder(capsys: Capture, ledger: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "r.md"
    result = call(capsys, "report", ledger, "--markdown", file)
    assert result.code == 0
    assert f"wrote {file}" in result.err
    assert file.read_text(encoding="utf-8").startswith("# Detection of adversarial images (plan)\n")


def test_the_papers_database_can_be_chosen(capsys: Capture, ledger: Path) -> None:
    assert "the paper's numbers for svhn" in call(capsys, "report", ledger, "--paper", "svhn", "--full").out
    assert "the paper's numbers for" not in call(capsys, "report", ledger, "--paper", "none", "--full").out


def test_an_unknown_database_is_refused(capsys: Capture, ledger: Path) -> None:
    result = call(capsys, "report", ledger, "--paper", "imagnet")
    assert result.code == 2
    assert "error: paper is 'imagnet'; allowed: cifar10" in result.err


def test_a_ledger_that_is_not_there_is_code_4(capsys: Capture, tmp_path: Path) -> None:
    result = call(capsys, "report", tmp_path / "none.jsonl")
    assert result.code == 4
    assert "there is no ledger" in result.err


def test_an_empty_ledger_is_code_4_and_says_what_makes_results(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    result = call(capsys, "report", tmp_path / "empty.jsonl")
    assert (result.code, result.out) == (4, "")
    assert "there are no results in this ledger; `benfourier evaluate`" in result.err


def test_a_ledger_that_was_only_started_is_as_good_as_empty(capsys: Capture, tmp_path: Path) -> None:
    ledgers.write(tmp_path / "started.jsonl", [next(SMALL.records())])
    assert call(capsys, "report", tmp_path / "started.jsonl").code == 4


def test_open_without_a_page_is_a_usage_error(capsys: Capture, ledger: Path) -> None:
    result = call(capsys, "report", ledger, "--open")
    assert result.code == 2
    assert "--out report.html" in result.err


def test_a_file_that_cannot_be_written_is_reported(capsys: Capture, ledger: Path, tmp_path: Path) -> None:
    result = call(capsys, "report", ledger, "--markdown", tmp_path)
    assert result.code == 2
    assert "the report cannot be written" in result.err


@pytest.mark.parametrize("option", ["--out", "--markdown"])
def test_the_ledger_is_not_replaced_by_its_report(capsys: Capture, ledger: Path, option: str) -> None:
    before = ledger.read_bytes()
    result = call(capsys, "report", ledger, option, ledger)
    assert result.code == 2
    assert "this is the ledger" in result.err
    assert ledger.read_bytes() == before


def test_the_code_on_the_report_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    few = [record for record in SMALL.records() if isinstance(record, AttackSummary | Cost)]
    write(tmp_path, few).rename(tmp_path / "mnist.jsonl")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(code, "report.md", "exec"), names)  # noqa: S102
    assert list(names["tables"]) == ["costs", "attacks", "remaining"]
    assert "Success and distance of the attacks" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_help_shows_examples(capsys: Capture) -> None:
    assert "benfourier report mnist.jsonl" in call(capsys, "report", "--help").out
