"""Figures' numbers, Markdown, the terminal, JSON."""

import io
import json
import re
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from benfourier.report.curves import ALARMS, roc
from benfourier.report.gathering import gather
from benfourier.report.markdown import markdown, table_lines
from benfourier.report.paper import Printed
from benfourier.report.plain import plain
from benfourier.report.sections import sections, title
from benfourier.report.table import Entry, Row, Table
from benfourier.report.terminal import show
from benfourier.store.records import Scores
from tests.report.ledgers import HOSTILE, SCRIPT, Maker

RESULTS = gather(Maker(rows=40, renamed={"bim": HOSTILE, "mbf": f"a|b\n{SCRIPT}", "plan": "[red]x"}).records())
PARTS = sections(RESULTS)


def scores(folds: list[int], clean: list[float], adversarial: list[float]) -> Scores:
    benign = np.array(clean, np.float32)
    return Scores(tuple(map(str, folds)), tuple(folds), benign, benign, np.array(adversarial, np.float32))


def test_a_roc_curve_catches_only_what_lies_above_the_threshold() -> None:
    found = roc(scores([0] * 4, [1, 2, 3, 4], [0, 2.5, 3.5, 5]))
    at = dict(zip(ALARMS.tolist(), found.tolist(), strict=True))
    assert (at[0.0], at[0.25], at[0.5], at[1.0]) == (0.25, 0.5, 0.75, 1.0)


def test_a_roc_curve_over_folds_is_the_mean_of_their_curves() -> None:
    one, two = ([1.0, 2.0], [3.0, 4.0]), ([10.0, 20.0], [0.0, 0.0])
    both = roc(scores([0, 0, 1, 1], one[0] + two[0], one[1] + two[1]))
    alone = [roc(scores([0, 0], *part)) for part in (one, two)]
    assert both == pytest.approx(np.mean(alone, axis=0))
    assert not np.allclose(both, roc(scores([0] * 4, one[0] + two[0], one[1] + two[1])))


def test_ties_are_not_caught() -> None:
    assert roc(scores([0, 0], [1, 1], [1, 1]))[:-1].max() == 0


def test_markdown_tables_have_the_same_number_of_columns_in_every_line() -> None:
    lines = markdown(title(RESULTS), PARTS).splitlines()
    bars = [len(re.findall(r"(?<!\\)\|", line)) if line.startswith("| ") else 0 for line in lines]
    assert sum(1 for count in bars if count) > 150
    assert all(before == after for before, after in pairwise(bars) if before and after)
    heads = [place for place, line in enumerate(lines) if line.startswith("| ---")]
    assert len(heads) == sum(len(section.tables) for section in PARTS)
    assert all(bars[place - 1] and lines[place - 2] == "" for place in heads)


def test_markdown_escapes_the_words_of_the_ledger() -> None:
    text = markdown(title(RESULTS), PARTS)
    assert "<" not in text
    assert "a\\|b &lt;script&gt;" in text


def test_markdown_shows_how_far_a_number_lies_from_the_paper() -> None:
    def row(value: float, printed: Printed, *, compared: bool) -> str:
        rows = (Row("mbf", (Entry(f"{value}", value, paper=printed),)),)
        return [*table_lines(Table("t", "AUROC, %", "detector", ("bim",), rows, compared=compared))][-1]

    assert row(97.0, Printed((99.6,)), compared=True) == "| mbf | 97.0 \\| 99.6, -2.6 |"
    assert row(97.0, Printed((91.8, 97.3), "a slip"), compared=True) == "| mbf | 97.0 \\| 91.8 or 97.3?, +5.2 or -0.3 |"
    assert row(99.58, Printed((99.6,)), compared=True) == "| mbf | 99.58 \\| 99.6, +0.0 |"
    assert row(97.0, Printed((99.6,)), compared=False) == "| mbf | 97.0 \\| 99.6 |"


def test_a_narrow_terminal_shows_all_tables_and_takes_names_as_they_are() -> None:
    out = io.StringIO()
    show(title(RESULTS), PARTS, Console(file=out, width=80, highlight=False))
    told = out.getvalue()
    assert "[red]x" in told
    assert max(len(line) for line in told.splitlines()) <= 80
    assert all(section.title in told for section in PARTS)


def test_json_holds_numbers_as_numbers() -> None:
    held = json.loads(json.dumps(plain(title(RESULTS), PARTS), allow_nan=False))
    (table,) = [t for s in held["sections"] for t in s["tables"] if t["id"] == "non-transfer-auroc"]
    entry = table["rows"][0]["entries"][1]
    assert isinstance(entry["value"], float)
    assert entry["low"] < entry["value"] < entry["high"]
    assert entry["paper"]["values"] == [99.6]
