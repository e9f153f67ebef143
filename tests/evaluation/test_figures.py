"""Figures of cells and outcomes, against counts by hand."""

import numpy as np
import pytest

from benfourier.detectors.calibration import Sigmoid
from benfourier.evaluation.figures import Judge, Judged, allowed_rates, cell_of, overall_of, worst
from benfourier.evaluation.metrics import auroc, over_folds
from benfourier.evaluation.sample import Sample
from benfourier.theory.rates import clopper_pearson

NONE = (np.empty(0), np.empty(0, np.intp))


def judged(
    adversarial: list[float], folds: list[int] | None = None, attack: str = "bim", first: int = 0, tried: int = 100
) -> Judged:
    """Clean images score 0, noisy ones 0.1; the attack was tried on the first images."""
    count = len(adversarial)
    scores = np.stack([np.zeros(count), np.full(count, 0.1), np.array(adversarial)])
    ids = tuple(f"image-{first + row}" for row in range(count))
    return Judged(
        "near",
        attack,
        ids,
        np.array(folds or [0] * count),
        scores,
        scores - 1,
        frozenset(f"image-{row}" for row in range(tried)),
    )


def judge(threshold: float, centre: float = 0.5) -> Judge:
    return Judge(Sigmoid(10.0, -10.0 * centre), {"5%": threshold})


def test_rates_need_ten_false_alarms_to_be_expected() -> None:
    assert allowed_rates(199) == ()
    assert allowed_rates(200) == ("5%",)
    assert allowed_rates(1000) == ("5%", "1%")
    assert allowed_rates(10_000) == ("5%", "1%", "0.1%")


def test_a_cell_counts_what_it_says() -> None:
    found = cell_of(judged([1.0] * 30 + [0.05] * 10), {0: judge(0.07)}, 0)
    metrics = found.metrics
    assert found.sources == 40
    assert metrics["auroc"].value == pytest.approx((30 + 10 * 0.5) / 40)
    assert metrics["accuracy"].value == pytest.approx(110 / 120)
    assert metrics["tpr@5%"].value == 30 / 40
    assert (metrics["tpr@5%"].low, metrics["tpr@5%"].high) == clopper_pearson(30, 40)
    assert metrics["fpr-clean@5%"].value == 0
    assert metrics["fpr-noisy@5%"].value == 1
    assert metrics["over-trivial"].value == 0
    assert "tpr@1%" not in metrics
    assert found.scores is not None
    assert found.scores.adversarial.tolist() == pytest.approx([1.0] * 30 + [0.05] * 10)


def test_a_cell_with_too_few_successes_has_no_metrics() -> None:
    found = cell_of(judged([1.0] * 29), {0: judge(0.5)}, 0)
    assert (found.metrics, found.scores) == ({}, None)
    assert found.note.startswith("too few: 29")
    assert overall_of([judged([1.0] * 29)], NONE, {0: judge(0.5)}, 0) == {}


def test_every_machine_has_its_own_threshold_and_posterior() -> None:
    folds = [0] * 20 + [1] * 20
    made = judged([1.0] * 40, folds)
    metrics = cell_of(made, {0: judge(0.5), 1: judge(2.0, centre=2.0)}, 0).metrics
    assert metrics["tpr@5%"].value == 0.5
    assert metrics["accuracy"].value == pytest.approx(100 / 120)
    assert metrics["auroc"].value == 1


def test_auroc_under_cross_validation_is_the_mean_over_machines() -> None:
    sample = Sample(np.array([0.0, 1.0, 10.0, 11.0]), np.array([False, True, False, True]), ("a", "a", "b", "b"))
    assert auroc(sample)[0] == 0.75
    assert over_folds(auroc, np.array([0, 0, 1, 1]))(sample, None)[0] == 1
    lacking = np.array([[1.0, 1.0, 1.0, 0.0]])
    assert over_folds(auroc, np.array([0, 0, 1, 1]))(sample, lacking)[0] == 1


def test_mead_counts_an_image_only_if_all_its_attacks_are_caught() -> None:
    one = judged([1.0] * 40)
    other = judged([1.0] * 20 + [0.0] * 20, attack="deepfool", first=20)  # images 20 to 59
    found = overall_of([one, other], NONE, {0: judge(0.5)}, 0)
    assert found["mead@5%"].value == pytest.approx(40 / 60)
    assert found["fpr-clean@5%"].value == 0
    assert found["worst-auroc"].value == pytest.approx((20 + 20 * 0.25) / 40)
    assert "fpr-misclassified@5%" not in found


def test_mead_leaves_out_images_that_an_attack_was_not_tried_on() -> None:
    one, other = judged([0.0] * 10 + [1.0] * 50), judged([1.0] * 10 + [0.0] * 5 + [1.0] * 25, attack="dear", tried=40)
    found = overall_of([one, other], NONE, {0: judge(0.5)}, 0)
    assert found["mead@5%"].value == pytest.approx(25 / 40)
    rare = judged([1.0] * 30, attack="dearer", first=20, tried=45)
    assert overall_of([one, rare], NONE, {0: judge(0.5)}, 0)["mead@5%"].value == pytest.approx(35 / 45)
    few = judged([1.0] * 40, attack="dearest", tried=20)
    assert "mead@5%" not in overall_of([one, few], NONE, {0: judge(0.5)}, 0)


def test_the_worst_attack_may_be_another_in_every_draw() -> None:
    random = np.random.default_rng(0)
    cells = [judged(random.normal(0.2, 0.3, 60).tolist(), attack=name) for name in ("bim", "deepfool")]
    alone = [worst([cell], 0) for cell in cells]
    both = worst(cells, 0)
    assert both.value == min(found.value for found in alone)
    assert both.low <= min(found.low for found in alone)
    assert both.high <= min(found.high for found in alone)


def test_misclassified_images_are_judged_by_their_machines() -> None:
    wrong = (np.array([0.0, 1.0, 1.0, 3.0]), np.array([0, 0, 1, 1], np.intp))
    found = overall_of([judged([1.0] * 40)], wrong, {0: judge(0.5), 1: judge(2.0)}, 0)
    assert found["fpr-misclassified@5%"].value == 0.5
