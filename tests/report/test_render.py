"""A report as Markdown, on a terminal, and as JSON."""

import io
import json
import re
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from benfourier.report import render
from benfourier.report.paper import PaperNumber
from benfourier.report.registry import TERMINAL, Report, build
from benfourier.report.render import markdown, table_lines
from benfourier.report.results import Results
from benfourier.report.table import Entry, Row, Table
from benfourier.store.ledger import read
from tests.report.ledgers import HOSTILE, SCRIPT, Maker

RENAMED = {"bim": HOSTILE, "mbf": f"a|b\n{SCRIPT}", "plan": "[red]x"}
RESULTS = Results.from_records(Maker(rows=40, renamed=RENAMED).records())
REPORT = build(RESULTS)
REPRODUCTION = Path(__file__).parents[2] / "experiments" / "results" / "reproduce.jsonl"


def printed(report: Report, width: int, *, compact: bool = False) -> str:
    out = io.StringIO()
    render.print_report(report, Console(file=out, width=width, highlight=False), compact=compact)
    return out.getvalue()


def test_markdown_tables_have_the_same_number_of_columns_in_every_line() -> None:
    lines = markdown(REPORT).splitlines()
    bars = [len(re.findall(r"(?<!\\)\|", line)) if line.startswith("| ") else 0 for line in lines]
    assert sum(1 for count in bars if count) > 150
    assert all(before == after for before, after in pairwise(bars) if before and after)
    heads = [place for place, line in enumerate(lines) if line.startswith("| ---")]
    assert len(heads) == sum(len(section.tables) for section in REPORT.sections)
    assert all(bars[place - 1] and lines[place - 2] == "" for place in heads)


def test_markdown_escapes_the_words_of_the_ledger() -> None:
    text = markdown(REPORT)
    assert "<" not in text
    assert "a\\|b &lt;script&gt;" in text


def test_markdown_shows_how_far_a_number_lies_from_the_paper() -> None:
    def row(value: float, number: PaperNumber, *, differs: bool) -> str:
        rows = (Row("mbf", (Entry(f"{value}", value, paper=number),)),)
        return [*table_lines(Table("t", "AUROC, %", "detector", ("bim",), rows, differs_from_paper=differs))][-1]

    assert row(97.0, PaperNumber((99.6,)), differs=True) == "| mbf | 97.0 \\| 99.6, -2.6 |"
    assert (
        row(97.0, PaperNumber((91.8, 97.3), "a slip"), differs=True) == "| mbf | 97.0 \\| 91.8 or 97.3?, +5.2 or -0.3 |"
    )
    assert row(99.58, PaperNumber((99.6,)), differs=True) == "| mbf | 99.58 \\| 99.6, +0.0 |"
    assert row(97.0, PaperNumber((99.6,)), differs=False) == "| mbf | 97.0 \\| 99.6 |"


def test_a_narrow_terminal_shows_all_tables_and_takes_names_as_they_are() -> None:
    text = printed(REPORT, 80)
    assert "[red]x" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert all(section.title in text for section in REPORT.sections)


def test_a_terminal_report_fits_on_a_screen() -> None:
    report = build(Results.from_records(read(REPRODUCTION)), TERMINAL)
    lines = printed(report, render.WIDTH, compact=True).splitlines()
    assert len(lines) <= 25
    assert " has the best worst case of " in lines[2]
    assert any(line.startswith("In short: Worst AUROC") for line in lines)


def test_a_terminal_report_shows_failures() -> None:
    assert "Failures: Trials that failed" in printed(build(RESULTS, TERMINAL), render.WIDTH, compact=True)


def test_json_holds_numbers_as_numbers() -> None:
    parsed = json.loads(json.dumps(render.report_json(REPORT), allow_nan=False))
    (table,) = [t for s in parsed["sections"] for t in s["tables"] if t["id"] == "non-transfer-auroc"]
    entry = table["rows"][0]["entries"][1]
    assert isinstance(entry["value"], float)
    assert entry["low"] < entry["value"] < entry["high"]
    assert entry["paper"]["values"] == [99.6]
