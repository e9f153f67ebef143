from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import benfourier as bf
from benfourier.errors import OptionError
from benfourier.evaluation.studies.ks import fit_tests, ks_jobs, softmax_output
from benfourier.evaluation.studies.study import DataPart, run_jobs
from benfourier.store.ledger import records, write
from benfourier.store.records import KsResult
from tests.evaluation.logit_images import images_of, logit_classifier, logit_examples, random_logits

QUICK: dict[str, Any] = {"draws": 2, "bootstrap": 0}
ATTACKS = ("bim", "deepfool", "cw-l2", "r-pgd")


def parts(rows: int = 10) -> list[DataPart]:
    """Clean and noisy of one law, bim of another, the other attacks as bim; train, test and out-of-sample alike."""
    data_parts = []
    for place, (source, split) in enumerate([("here", "train"), ("here", "test"), ("there", "out-of-sample")]):
        seeds = [100 * place + number for number in range(6)]
        attacked = {attack: random_logits(rows, seed, 0.2) for attack, seed in zip(ATTACKS, seeds[2:], strict=True)}
        examples = logit_examples(
            random_logits(rows, seeds[0], 4.0), random_logits(rows, seeds[1], 4.0), attacked, name=split
        )
        data_parts.append(DataPart(source, split, examples))
    return data_parts


def study(
    data_parts: list[DataPart], known: Collection[str] = (), **options: Any
) -> dict[tuple[str, str, str], KsResult]:
    jobs = ks_jobs(logit_classifier(), data_parts, **{**QUICK, **options})
    results = [
        record for record in run_jobs(jobs, "KS", known=known, show_progress=False) if isinstance(record, KsResult)
    ]
    named = {(result.study, result.split, result.kind): result for result in results}
    assert len(named) == len(results)
    return named


def test_every_hypothesis_is_tested_on_every_part() -> None:
    results = study(parts())
    kinds = ["clean", "noisy", *ATTACKS]
    for split in ("train", "test", "out-of-sample"):
        assert [kind for study, where, kind in results if (study, where) == ("h1", split)] == kinds
        pairs = [(study, kind) for study, where, kind in results if study.startswith("h2.") and where == split]
        expected = ["clean|noisy", "clean|bim", "bim|deepfool", "cw-l2|r-pgd"]
        assert pairs == [(f"h2.{number}", kind) for number, kind in enumerate(expected, 1)]
    for split in ("test", "out-of-sample"):
        assert [kind for study, where, kind in results if (study, where) == ("h2-sources", split)] == kinds
        assert results["h2-sources", split, "clean"].source == f"train|{split}"
    assert results["h1", "test", "clean"].source == "here"


def test_sets_of_one_law_are_not_told_apart_and_others_are() -> None:
    results = study(parts(200)[:2])
    for split in ("train", "test"):
        same, moved = results["h2.1", split, "clean|noisy"], results["h2.2", split, "clean|bim"]
        assert same.p > 0.2
        assert same.distance < 0.12
        assert same.more["rejected"] == 0
        assert moved.p < 0.05
        assert moved.more["p-adjusted"] < 1e-10
        assert moved.more["rejected"] > 0.5
        assert moved.more["distance-largest"] > moved.distance > 2 * same.distance
    assert results["h2-sources", "test", "bim"].p > 0.2


def test_p_of_h2_is_the_mean_over_the_orders() -> None:
    data_parts = parts(40)
    h2 = study(data_parts, orders=3)["h2.2", "train", "clean|bim"]
    examples = data_parts[0].examples
    one, other = (
        bf.features(logit_classifier(), images, 3, layers="soft-max", dtype="float64", show_progress=False)
        for images in (examples.clean, examples.adversarial["bim"])
    )
    expected = [stats.ks_2samp(one[:, order], other[:, order]).statistic for order in range(3)]
    assert h2.more["tests"] == 3
    assert h2.distance == pytest.approx(np.mean(expected), abs=1e-12)
    later = [stats.kstwobign.sf(np.sqrt(20) * distance) for distance in expected]
    assert h2.p == pytest.approx(np.mean(later), rel=1e-9)


def test_h1_is_the_mean_over_the_tests_of_the_images() -> None:
    data_parts = parts(12)[1:2]
    h1 = study(data_parts, draws=30, bootstrap=19, samples=100, seed=4)["h1", "test", "bim"]
    examples = data_parts[0].examples
    posteriors = softmax_output(logit_classifier(), examples.adversarial["bim"], 1).posteriors
    names = [f"bim\0{name}" for name in examples.ids]
    expected = fit_tests(posteriors, names, seed=4, draws=30, bootstrap=19, samples=100)
    assert expected.any_shape is not None
    assert (h1.images, h1.distance, h1.p) == (12, expected.distance.mean(), expected.p.mean())
    assert h1.more["p-any-shape"] == expected.any_shape.mean()
    assert h1.more["any-shape-below-0.05"] == (expected.any_shape < 0.05).mean()
    assert h1.more["p-adjusted"] == min(1, 12 * expected.p.min())
    assert (h1.more["draws"], h1.more["samples"], h1.more["bootstrap"]) == (30, 100, 19)


def test_only_successes_are_compared() -> None:
    examples = logit_examples(random_logits(30, 0), random_logits(30, 1), {"bim": random_logits(30, 2)}, succeeded=12)
    results = study([DataPart("here", "test", examples)])
    assert results["h1", "test", "bim"].images == 12
    pair = results["h2.2", "test", "clean|bim"]
    assert (pair.images, pair.more["images-larger"]) == (12, 30)


def test_pairs_without_their_attack_are_left_out() -> None:
    examples = logit_examples(random_logits(20, 0), random_logits(20, 1), {"bim": random_logits(20, 2)})
    results = study([DataPart("here", "test", examples)])
    assert {study for study, _, _ in results} == {"h1", "h2.1", "h2.2"}
    failed = replace(examples, success={"bim": examples.success["bim"] & False})
    assert {kind for _, _, kind in study([DataPart("here", "test", failed)])} == {"clean", "noisy", "clean|noisy"}


def test_images_without_a_fit_are_counted_and_may_be_all() -> None:
    flat = random_logits(6, 0)
    flat[:2] = 0.0
    results = study([DataPart("here", "test", logit_examples(flat, np.zeros((6, 10)), {"bim": random_logits(6, 1)}))])
    some, none = results["h1", "test", "clean"], results["h1", "test", "noisy"]
    assert (some.images, some.more["unfitted"]) == (4, 2)
    assert (none.images, none.more["unfitted"]) == (0, 6)
    assert np.isnan(none.p)


def test_the_soft_max_layer_is_observed_as_by_the_features() -> None:
    images = images_of(random_logits(9, 5))
    output = softmax_output(logit_classifier(), images, 16)
    assert output.posteriors.dtype == np.float64
    assert np.allclose(output.posteriors.sum(axis=1), 1, atol=1e-14)
    expected = bf.features(logit_classifier(), images, layers="soft-max", dtype="float64", show_progress=False)
    assert np.allclose(output.magnitudes, expected, rtol=0, atol=1e-7)  # features are rounded to float32


def test_records_have_keys_of_what_made_them_and_known_ones_are_not_made_again() -> None:
    first, again, other = study(parts()), study(parts()), study(parts(), seed=1)
    assert first == again
    for name, result in first.items():
        assert (other[name].key == result.key) == (name[0] != "h1")
    assert len({result.key for result in first.values()}) == len(first)
    known = {result.key for name, result in first.items() if name[2] != "noisy"}
    left = study(parts(), known=known)
    assert left == {name: result for name, result in first.items() if name[2] == "noisy"}


def test_records_go_through_a_ledger(tmp_path: Any) -> None:
    results = list(study(parts()).values())
    write(tmp_path / "x.jsonl", results)
    assert list(records(tmp_path / "x.jsonl")) == results


def test_bad_options_are_refused() -> None:
    with pytest.raises(OptionError, match="bootstrap is -1"):
        study(parts(), bootstrap=-1)
