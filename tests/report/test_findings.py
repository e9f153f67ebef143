"""Sentences on the distance from the paper follow from the numbers."""

from dataclasses import replace

from benfourier.report.registry import build
from benfourier.report.results import Results
from benfourier.store.records import Cell, Estimate, Outcome
from tests.report.ledgers import Maker

RECORDS = tuple(Maker().records())
RUN = RECORDS[0]  # with the paper's network


def said(auroc: float) -> str:
    """The sentences of a ledger with one result, that of mbf under bim."""
    old = next(r for r in RECORDS if isinstance(r, Outcome) and r.detector == "mbf")
    cell = Cell("bim", "cifar10", 60, {"auroc": Estimate(auroc, auroc - 0.01, auroc + 0.01)})
    results = Results.from_records((RUN, replace(old, fitted=("bim",), cells=(cell,))))
    return "\n".join(build(results).sections[-1].sentences)


def test_a_number_within_two_points_of_the_paper_is_near_and_one_beyond_is_reported() -> None:
    assert "AUROC of mbf: more than 2 points from the paper in 0 of 1 number." in said(0.9761)
    assert "in 1 of 1 number: bim 95.0 % (94.0 to 96.0), 4.6 points below the paper's 99.6." in said(0.95)


def test_the_source_of_the_papers_numbers_comes_first() -> None:
    assert said(0.95).startswith("Numbers of the paper: Ma et al.")
