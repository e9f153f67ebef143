import doctest
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import benfourier

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CASE = """{"name": "kernel/2x3", "figures": {"naive_ms": 10.0, "fused_ms": 0.1, "speed_up": 100.0},
           "limited": "speed_up", "limit": 50.0, "sense": "at least"}"""
ENVIRONMENT = """{"cpu": "a processor", "threads": 2, "python": "3.11", "torch": "2", "numpy": "2", "numba": "0",
                  "date": "2000-01-01", "rounds": 3}"""


def table(*arguments: str | Path) -> int:
    """Exit code of `python -m benchmarks.table`."""
    command = [sys.executable, "-m", "benchmarks.table", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True).returncode  # noqa: S603


def blocks(page: str) -> list[str]:
    """The Python on a page."""
    return re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)


@pytest.mark.parametrize("command", ["make quickstart", "make test"])
def test_the_readme_shows_the_two_commands(command: str) -> None:
    assert f"\n{command}\n" in README


def test_the_readme_links_to_files_that_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_readme_links_to_every_page() -> None:
    pages = [f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")]
    assert [page for page in pages if f"]({page})" not in README] == []


def test_the_code_in_the_readme_prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(README)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    printed = capsys.readouterr().out.splitlines()
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert len(said) == len(printed) > 0
    assert all(comment.startswith(line) for line, comment in zip(printed, said, strict=True))


def test_the_code_on_the_features_page_prints_what_the_page_shows() -> None:
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner()
    page = ROOT / "docs" / "features.md"
    for number, block in enumerate(blocks(page.read_text(encoding="utf-8"))):
        test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", str(page), 0)
        assert runner.run(test, clear_globs=False).failed == 0
        names.update(test.globs)
    assert runner.tries > 10


def test_the_readme_shows_the_results_of_the_benchmarks() -> None:
    assert table("--check") == 0


def test_a_table_that_does_not_show_the_results_is_noticed(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n", encoding="utf-8")
    results.write_text(f'{{"environment": {ENVIRONMENT}, "cases": [{CASE}]}}', encoding="utf-8")
    where = ("--readme", page, "--json", results)
    assert table("--check", *where) == 1
    assert table(*where) == 0
    assert table("--check", *where) == 0
    written = page.read_text(encoding="utf-8")
    assert "| 100× | at least 50× | yes |" in written
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    page.write_text(written.replace("100×", "200×"), encoding="utf-8")
    assert table("--check", *where) == 1


def test_the_version_is_the_same_in_both_places() -> None:
    assert PROJECT["project"]["version"] == benfourier.__version__


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "src" / "benfourier" / "py.typed").is_file()


def test_every_room_is_in_the_import_contract() -> None:
    contracts = {contract["name"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
    assert {"rooms import only rooms below them", "theory needs no torch", "numba has one door"} <= contracts.keys()
    listed = " ".join(contracts["rooms import only rooms below them"]["layers"]).split()
    package = ROOT / "src" / "benfourier"
    rooms = [path.stem for path in package.iterdir() if (path / "__init__.py").exists() or path.suffix == ".py"]
    assert {f"benfourier.{room}" for room in rooms if room != "__init__"} == {
        name for name in listed if name.startswith("benfourier.")
    }


def test_the_design_page_names_every_file() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    files = [path.name for path in (ROOT / "src" / "benfourier").glob("*/*.py") if path.name != "__init__.py"]
    unnamed = [name for name in files if f"`{name}`" not in page]
    assert unnamed == []


def test_every_dependency_has_a_tested_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0].lower() for line in lines if "==" in line}
    project = PROJECT["project"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    wanted = [*PROJECT["build-system"]["requires"], *project["dependencies"], *extras]
    names = {re.split(r"[\[<>=~!]", requirement)[0].lower() for requirement in wanted} - {"benfourier"}
    assert names - pinned == set()


def test_no_file_tells_of_the_machine_it_was_written_on() -> None:
    git = shutil.which("git")
    listed = git and subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)  # noqa: S603
    if not listed or listed.returncode != 0:
        pytest.skip("this is not a git checkout")
    words = ["/" + "work/", "/" + "root/", "/" + "home/", "index" + "-url", "find" + "-links"]
    found = [
        f"{name}: {word}"
        for name in listed.stdout.split("\0")
        if name and (ROOT / name).is_file()
        for word in words
        if word.encode() in (ROOT / name).read_bytes()
    ]
    assert found == []
