"""A new table or figure is one function."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from benfourier.report import registry
from benfourier.report.registry import DOCS, EVERYONE, FULL, TERMINAL, build, table
from benfourier.report.results import Results
from benfourier.report.table import Row, Table, texts
from tests.report.ledgers import Maker

RESULTS = Results.from_records(Maker(rows=40).records())


@patch.dict(table)
def test_a_registered_table_is_in_the_report_of_its_audiences_only() -> None:
    @table("seeds", section="settings", audiences=frozenset({TERMINAL}))
    def seeds(results: Results) -> Iterator[Table]:
        yield Table("seeds", "Seeds", "run", ("seed",), (Row("last", texts(results.outcomes[-1].seed)),))

    assert build(RESULTS, TERMINAL).tables["seeds"].rows[0].entries[0].text == "0"
    assert "seeds" not in build(RESULTS, FULL).tables
    assert "seeds" not in build(RESULTS, DOCS).tables


def test_a_name_in_use_and_an_unknown_section_are_refused() -> None:
    with pytest.raises(AssertionError, match="costs"):
        table("costs", section="costs")
    with pytest.raises(AssertionError, match="nowhere"):
        table("new", section="nowhere")


def test_the_full_report_has_every_table_of_the_terminal() -> None:
    full = build(RESULTS, FULL).tables
    assert set(build(RESULTS, TERMINAL).tables) <= set(full)
    assert len(full) > 40


def test_figures_are_only_drawn_when_they_are_shown() -> None:
    assert all(callable(panel.draw) for figure in build(RESULTS).figures for panel in figure.panels)
    assert build(RESULTS, TERMINAL).figures == ()


@pytest.mark.parametrize("parts", [registry.sentences, registry.table, registry.figure, registry.picture])
def test_every_function_has_an_audience(parts: registry.ReportParts) -> None:
    assert parts
    assert all(part.audiences and part.audiences <= EVERYONE for part in parts.values())
