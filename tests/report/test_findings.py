"""Sentences follow from the numbers."""

from dataclasses import replace

from benfourier.report.registry import build
from benfourier.report.results import Results
from benfourier.store.records import Cell, Estimate, Outcome, Record
from tests.report.ledgers import Maker

RECORDS = tuple(Maker().records())
RUN = RECORDS[0]  # with the paper's network


def said(*records: Record) -> str:
    return "\n".join(build(Results.from_records((RUN, *records))).sections[0].sentences)


def lone(auroc: float, over: tuple[float, float], attack: str = "bim", detector: str = "mbf") -> Outcome:
    """One non-transfer outcome with that AUROC, and that interval of its difference from max-softmax."""
    old = next(r for r in RECORDS if isinstance(r, Outcome) and r.detector == "mbf")
    metrics = {"auroc": Estimate(auroc, auroc - 0.01, auroc + 0.01), "auroc-gain": Estimate(sum(over) / 2, *over)}
    cell = Cell(attack, "cifar10", 60, metrics)
    return replace(old, key=f"{attack} {detector}", detector=detector, method=detector, fitted=(attack,), cells=(cell,))


def test_the_worst_cell_is_named_with_its_number() -> None:
    text = said(lone(0.95, (0.01, 0.02)), lone(0.7, (0.01, 0.02), "deepfool"))
    assert (
        "mbf has an AUROC of at least 90 % in 1 of 2 cells; its worst is deepfool with 70.0 % (69.0 to 71.0)." in text
    )


def test_cells_below_max_softmax_are_named_only_if_the_whole_interval_is() -> None:
    text = said(lone(0.95, (-0.04, -0.02)), lone(0.9, (-0.02, 0.01), "cw-l2"), lone(0.9, (0.01, 0.03), "deepfool"))
    assert "better in 1, worse in 1 and undecided in 1 of 3 cells" in text
    assert "worse: bim (-3.0 points, -4.0 to -2.0)." in text


def test_a_number_within_two_points_of_the_paper_is_near_and_one_beyond_is_reported() -> None:
    assert "AUROC of mbf: more than 2 points from the paper in 0 of 1 number." in said(lone(0.9761, (0, 0)))
    text = said(lone(0.95, (0, 0)))
    assert "in 1 of 1 number: bim 95.0 % (94.0 to 96.0), 4.6 points below the paper's 99.6." in text


def test_the_best_worst_case_comes_first_beside_mbf_and_the_baseline() -> None:
    best, beside, verdict, *_ = said(*RECORDS).splitlines()
    assert best.startswith("Best worst case over 8 attacks on cifar10: max-softmax, AUROC ")
    assert beside.startswith("Beside it: mbf fitted to all attacks, AUROC ")
    assert "attacker who knows the detector was not tested" in verdict


def test_a_detector_is_said_to_hold_only_if_it_does_under_every_attack() -> None:
    outcomes = [r for r in RECORDS if isinstance(r, Outcome) and r.protocol == "mixed" and r.detector == "mbf"]
    for worst, verdict in ((0.91, "It holds an AUROC of 90 %"), (0.89, "No detector here holds an AUROC of 90 %")):
        overall = {"worst-auroc": Estimate(worst, worst, worst)}
        assert verdict in said(*(replace(outcome, overall=overall) for outcome in outcomes))


def test_a_ledger_without_mbf_says_so() -> None:
    assert said(lone(0.95, (0, 0), "bim", "lid")) == "This ledger holds no results of mbf."


def test_what_is_missing_is_reported() -> None:
    text = said(*RECORDS)
    assert "Too few successful attacks for a number: 5 cells of the ledger." in text
    assert "1 trial failed" in text
    assert "Run below their authors' settings, as the footnotes say: defense-gan." in text
