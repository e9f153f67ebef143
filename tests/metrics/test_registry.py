"""Metrics of cells and outcomes, against counts by hand."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benfourier.metrics.bootstrap import Bootstrap
from benfourier.metrics.intervals import clopper_pearson
from benfourier.metrics.ranking import auroc, over_folds
from benfourier.metrics.registry import (
    CELL_METRICS,
    OUTCOME_METRICS,
    allowed_rates,
    cell_metrics,
    outcome_metrics,
    worst_auroc,
)
from benfourier.metrics.scores import FoldCalibration, FoldedScores, OutcomeScores, ScoreSample, TargetScores
from benfourier.store.records import Estimate
from benfourier.store.vocabulary import CONFIDENT_SHARES, ProtocolName

SAME, ALL = ProtocolName.SAME_ATTACK, ProtocolName.ALL_ATTACKS


def target(
    adversarial: list[float], folds: list[int] | None = None, attack: str = "bim", first: int = 0, tried: int = 100
) -> TargetScores:
    """Clean images score 0, noisy ones 0.1; the attack was tried on the first images."""
    count = len(adversarial)
    scores = np.stack([np.zeros(count), np.full(count, 0.1), np.array(adversarial)])
    ids = tuple(f"image-{first + row}" for row in range(count))
    names = frozenset(f"image-{row}" for row in range(tried))
    return TargetScores("near", attack, ids, np.array(folds or [0] * count), scores, scores - 1, names, {})


def calibration(threshold: float, centre: float = 0.5) -> FoldCalibration:
    return FoldCalibration(lambda scores: 1 / (1 + np.exp(10 * (centre - scores))), {"5%": threshold})


def cell(scores: TargetScores, calibrations: Mapping[int, FoldCalibration]) -> dict[str, Estimate]:
    return cell_metrics(replace(scores, calibrations=calibrations), Bootstrap(0), SAME)


def overall(
    targets: list[TargetScores], calibrations: Mapping[int, FoldCalibration], *misclassified: Any
) -> dict[str, Estimate]:
    wrong = misclassified or (np.empty(0), np.empty(0, np.intp))
    return outcome_metrics(outcome(targets, calibrations, *wrong), Bootstrap(0), ALL)


def outcome(
    targets: list[TargetScores], calibrations: Mapping[int, FoldCalibration], scores: Any, folds: Any
) -> OutcomeScores:
    every = tuple(replace(one, calibrations=calibrations) for one in targets)
    return OutcomeScores(every, {"misclassified": FoldedScores(scores, folds)}, calibrations)


def test_rates_need_ten_false_alarms_to_be_expected() -> None:
    assert allowed_rates(199) == ()
    assert allowed_rates(200) == ("5%",)
    assert allowed_rates(1000) == ("5%", "1%")
    assert allowed_rates(10_000) == ("5%", "1%", "0.1%")


def test_a_cell_counts_what_it_says() -> None:
    metrics = cell(target([1.0] * 30 + [0.05] * 10), {0: calibration(0.07)})
    assert metrics["auroc"].value == pytest.approx((30 + 10 * 0.5) / 40)
    assert metrics["accuracy"].value == pytest.approx(110 / 120)
    assert metrics["tpr@5%"].value == 30 / 40
    assert (metrics["tpr@5%"].low, metrics["tpr@5%"].high) == clopper_pearson(30, 40)
    assert metrics["fpr-clean@5%"].value == 0
    assert metrics["fpr-noisy@5%"].value == 1
    assert metrics["auroc-gain"].value == 0
    assert "tpr@1%" not in metrics


def test_a_cell_with_too_few_successes_has_no_metrics() -> None:
    assert cell(target([1.0] * 29), {0: calibration(0.5)}) == {}
    assert overall([target([1.0] * 29)], {0: calibration(0.5)}) == {}


def test_every_machine_has_its_own_threshold_and_posterior() -> None:
    folds = [0] * 20 + [1] * 20
    metrics = cell(target([1.0] * 40, folds), {0: calibration(0.5), 1: calibration(2.0, centre=2.0)})
    assert metrics["tpr@5%"].value == 0.5
    assert metrics["accuracy"].value == pytest.approx(100 / 120)
    assert metrics["auroc"].value == 1


def test_auroc_under_cross_validation_is_the_mean_over_machines() -> None:
    sample = ScoreSample(np.array([0.0, 1.0, 10.0, 11.0]), np.array([False, True, False, True]), ("a", "a", "b", "b"))
    assert auroc(sample)[0] == 0.75
    assert over_folds(auroc, np.array([0, 0, 1, 1]))(sample, None)[0] == 1
    lacking = np.array([[1.0, 1.0, 1.0, 0.0]])
    assert over_folds(auroc, np.array([0, 0, 1, 1]))(sample, lacking)[0] == 1


def test_mead_counts_an_image_only_if_all_its_attacks_are_caught() -> None:
    one = target([1.0] * 40)
    other = target([1.0] * 20 + [0.0] * 20, attack="deepfool", first=20)  # images 20 to 59
    metrics = overall([one, other], {0: calibration(0.5)})
    assert metrics["mead@5%"].value == pytest.approx(40 / 60)
    assert metrics["fpr-clean@5%"].value == 0
    assert metrics["worst-auroc"].value == pytest.approx((20 + 20 * 0.25) / 40)
    assert "fpr-misclassified@5%" not in metrics


def test_mead_leaves_out_images_that_an_attack_was_not_tried_on() -> None:
    one, other = target([0.0] * 10 + [1.0] * 50), target([1.0] * 10 + [0.0] * 5 + [1.0] * 25, attack="slow", tried=40)
    metrics = overall([one, other], {0: calibration(0.5)})
    assert metrics["mead@5%"].value == pytest.approx(25 / 40)
    rare = target([1.0] * 30, attack="slower", first=20, tried=45)
    assert overall([one, rare], {0: calibration(0.5)})["mead@5%"].value == pytest.approx(35 / 45)
    few = target([1.0] * 40, attack="slowest", tried=20)
    assert "mead@5%" not in overall([one, few], {0: calibration(0.5)})


def test_the_worst_attack_may_be_another_in_every_draw() -> None:
    random = np.random.default_rng(0)
    cells = [target(random.normal(0.2, 0.3, 60).tolist(), attack=name) for name in ("bim", "deepfool")]
    none = (np.empty(0), np.empty(0, np.intp))
    alone = [worst_auroc(outcome([one], {}, *none), Bootstrap()) for one in cells]
    both = worst_auroc(outcome(cells, {}, *none), Bootstrap())
    assert both.value == min(estimate.value for estimate in alone)
    assert both.low <= min(estimate.low for estimate in alone)
    assert both.high <= min(estimate.high for estimate in alone)


def test_misclassified_images_are_judged_by_their_machines() -> None:
    wrong = (np.array([0.0, 1.0, 1.0, 3.0]), np.array([0, 0, 1, 1], np.intp))
    metrics = overall([target([1.0] * 40)], {0: calibration(0.5), 1: calibration(2.0)}, *wrong)
    assert metrics["fpr-misclassified@5%"].value == 0.5


def drawn(folds: int = 1, rows: int = 200) -> TargetScores:
    random = np.random.default_rng(1)
    scores = random.normal(size=(3, rows)) + np.array([[0.0], [0.3], [1.0]])
    baseline = random.normal(size=(3, rows))
    return replace(target([0.0] * rows), scores=scores, baseline=baseline, folds=np.arange(rows) % folds)


@pytest.mark.parametrize(("kind", "row"), [("clean", 0), ("noisy", 1)])
def test_each_benign_kind_is_compared_by_itself(kind: str, row: int) -> None:
    scores = drawn().scores
    expected = roc_auc_score(np.repeat([0, 1], 200), scores[[row, 2]].reshape(-1))
    assert cell(drawn(), {})[f"auroc-{kind}"].value == pytest.approx(expected)


@pytest.mark.parametrize(("name", "share"), CONFIDENT_SHARES.items())
@pytest.mark.parametrize("is_baseline", [False, True])
def test_the_least_confident_are_left_out_with_all_their_twins(name: str, share: float, is_baseline: bool) -> None:
    scores = replace(drawn(), baseline=None) if is_baseline else drawn()
    doubt = scores.scores[0] if scores.baseline is None else scores.baseline[0]
    rows = np.argsort(doubt)[: round(share * 200)]
    expected = roc_auc_score(np.repeat([0, 0, 1], len(rows)), scores.scores[:, rows].reshape(-1))
    assert cell(scores, {})[f"auroc-sure@{name}"].value == pytest.approx(expected)


def test_folds_of_confident_sources_are_judged_apart() -> None:
    one, five = (cell(drawn(folds), {})["auroc-sure@50%"].value for folds in (1, 5))
    assert one != five


def test_nothing_is_said_of_few_confident_sources() -> None:
    metrics = cell(drawn(rows=35), {})
    assert [key for key in metrics if "sure" in key] == ["auroc-sure@95%", "auroc-sure@90%"]


def test_metrics_of_one_attack_are_computed_for_that_protocol_only() -> None:
    metrics = cell_metrics(drawn(), Bootstrap(), ALL)
    assert set(metrics) == {"auroc", "aupr", "auroc-gain"}


def test_every_metric_has_a_title_and_a_key_of_its_own() -> None:
    for metrics in (CELL_METRICS, OUTCOME_METRICS):
        assert all(metric.key == key and metric.title for key, metric in metrics.items())
        assert len({metric.title for metric in metrics.values()}) == len(metrics)
