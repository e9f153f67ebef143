from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import benfourier as bf
from benfourier.errors import OptionError
from benfourier.evaluation.goodness import goodness
from benfourier.evaluation.ks_study import ks_study
from benfourier.evaluation.parts import Part
from benfourier.evaluation.softmax_layer import hear_softmax
from benfourier.store.ledger import Ledger
from benfourier.store.records import KsResult
from tests.evaluation.spoken import images_of, speaker, spoken, unsure

QUICK: dict[str, Any] = {"draws": 2, "bootstrap": 0, "show_progress": False}
ATTACKS = ("bim", "deepfool", "cw-l2", "r-pgd")


def parts(rows: int = 10) -> list[Part]:
    """Clean and noisy of one law, bim of another, the other attacks as bim; train, test and out-of-sample alike."""
    made = []
    for place, (source, split) in enumerate([("here", "train"), ("here", "test"), ("there", "out-of-sample")]):
        seeds = [100 * place + number for number in range(6)]
        attacked = {attack: unsure(rows, seed, 0.2) for attack, seed in zip(ATTACKS, seeds[2:], strict=True)}
        examples = spoken(unsure(rows, seeds[0], 4.0), unsure(rows, seeds[1], 4.0), attacked, name=split)
        made.append(Part(source, split, examples))
    return made


def study(given: list[Part], **options: Any) -> dict[tuple[str, str, str], KsResult]:
    found = list(ks_study(speaker(), given, **{**QUICK, **options}))
    named = {(result.study, result.split, result.kind): result for result in found}
    assert len(named) == len(found)
    return named


def test_every_hypothesis_is_tested_on_every_part() -> None:
    found = study(parts())
    kinds = ["clean", "noisy", *ATTACKS]
    for split in ("train", "test", "out-of-sample"):
        assert [kind for study, where, kind in found if (study, where) == ("h1", split)] == kinds
        pairs = [(study, kind) for study, where, kind in found if study.startswith("h2.") and where == split]
        expected = ["clean|noisy", "clean|bim", "bim|deepfool", "cw-l2|r-pgd"]
        assert pairs == [(f"h2.{number}", kind) for number, kind in enumerate(expected, 1)]
    for split in ("test", "out-of-sample"):
        assert [kind for study, where, kind in found if (study, where) == ("h2-sources", split)] == kinds
        assert found["h2-sources", split, "clean"].source == f"train|{split}"
    assert found["h1", "test", "clean"].source == "here"


def test_sets_of_one_law_are_not_told_apart_and_others_are() -> None:
    found = study(parts(200)[:2])
    for split in ("train", "test"):
        same, moved = found["h2.1", split, "clean|noisy"], found["h2.2", split, "clean|bim"]
        assert same.p > 0.2
        assert same.distance < 0.12
        assert same.more["rejected"] == 0
        assert moved.p < 0.05
        assert moved.more["p-adjusted"] < 1e-10
        assert moved.more["rejected"] > 0.5
        assert moved.more["distance-largest"] > moved.distance > 2 * same.distance
    assert found["h2-sources", "test", "bim"].p > 0.2


def test_p_of_h2_is_the_mean_over_the_orders() -> None:
    given = parts(40)
    found = study(given, orders=3)["h2.2", "train", "clean|bim"]
    examples = given[0].examples
    one, other = (
        bf.features(speaker(), images, 3, layers="soft-max", dtype="float64", show_progress=False)
        for images in (examples.clean, examples.attacked["bim"])
    )
    expected = [stats.ks_2samp(one[:, order], other[:, order], method="exact") for order in range(3)]
    assert found.more["tests"] == 3
    assert found.distance == pytest.approx(np.mean([result.statistic for result in expected]), abs=1e-12)
    assert found.more["p-exact"] == pytest.approx(np.mean([result.pvalue for result in expected]), rel=1e-9)


def test_h1_is_the_mean_over_the_images_of_what_goodness_finds() -> None:
    given = parts(12)[1:2]
    found = study(given, draws=30, bootstrap=19, samples=100, seed=4)["h1", "test", "bim"]
    examples = given[0].examples
    posteriors = hear_softmax(speaker(), examples.attacked["bim"], 1).posteriors
    names = [f"bim\0{name}" for name in examples.ids]
    expected = goodness(posteriors, names, seed=4, draws=30, bootstrap=19, samples=100)
    assert expected.exact is not None
    assert expected.bootstrap is not None
    assert expected.any_shape is not None
    assert (found.images, found.distance, found.p) == (12, expected.distance.mean(), expected.asymptotic.mean())
    assert found.more["p-exact"] == expected.exact.mean()
    assert found.more["p-bootstrap"] == expected.bootstrap.mean()
    assert found.more["p-any-shape"] == expected.any_shape.mean()
    assert found.more["bootstrap-below-0.05"] == (expected.bootstrap < 0.05).mean()
    assert found.more["p-adjusted"] == min(1, 12 * expected.asymptotic.min())
    assert (found.more["draws"], found.more["samples"], found.more["bootstrap"]) == (30, 100, 19)


def test_only_successes_are_compared() -> None:
    examples = spoken(unsure(30, 0), unsure(30, 1), {"bim": unsure(30, 2)}, won=12)
    found = study([Part("here", "test", examples)])
    assert found["h1", "test", "bim"].images == 12
    pair = found["h2.2", "test", "clean|bim"]
    assert (pair.images, pair.more["images-larger"]) == (12, 30)


def test_pairs_without_their_attack_are_left_out() -> None:
    examples = spoken(unsure(20, 0), unsure(20, 1), {"bim": unsure(20, 2)})
    found = study([Part("here", "test", examples)])
    assert {study for study, _, _ in found} == {"h1", "h2.1", "h2.2"}
    failed = replace(examples, success={"bim": examples.success["bim"] & False})
    assert {kind for _, _, kind in study([Part("here", "test", failed)])} == {"clean", "noisy", "clean|noisy"}


def test_images_without_a_fit_are_told_of_and_may_be_all() -> None:
    flat = unsure(6, 0)
    flat[:2] = 0.0
    found = study([Part("here", "test", spoken(flat, np.zeros((6, 10)), {"bim": unsure(6, 1)}))])
    some, none = found["h1", "test", "clean"], found["h1", "test", "noisy"]
    assert (some.images, some.more["unfitted"]) == (4, 2)
    assert (none.images, none.more["unfitted"]) == (0, 6)
    assert np.isnan(none.p)


def test_the_soft_max_layer_is_heard_as_the_features_hear_it() -> None:
    images = images_of(unsure(9, 5))
    heard = hear_softmax(speaker(), images, 16)
    assert heard.posteriors.dtype == np.float64
    assert np.allclose(heard.posteriors.sum(axis=1), 1, atol=1e-14)
    expected = bf.features(speaker(), images, layers="soft-max", dtype="float64", show_progress=False)
    assert np.array_equal(heard.magnitudes, expected)


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
    ledger = Ledger(tmp_path / "x.jsonl")
    made = list(study(parts()).values())
    for result in made:
        ledger.append(result)
    assert list(ledger.records()) == made


def test_bad_options_are_refused() -> None:
    with pytest.raises(OptionError, match="bootstrap is -1"):
        study(parts(), bootstrap=-1)
