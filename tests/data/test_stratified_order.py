"""An order of all images of which every beginning has the classes in their shares."""

import numpy as np
import pytest

from benfourier.data import stratified_order
from benfourier.errors import OptionError

IDS = [f"image {n}" for n in range(60)]
LABELS = np.array([0] * 30 + [1] * 20 + [2] * 10)


def test_every_beginning_has_the_classes_in_their_shares() -> None:
    order = stratified_order(IDS, LABELS, seed=0)
    assert sorted(order.tolist()) == list(range(60))
    for count in range(1, 61):
        counts = np.bincount(LABELS[order[:count]], minlength=3)
        assert (abs(counts - count * np.array([30, 20, 10]) / 60) <= 1).all()


def test_the_order_of_the_rows_does_not_matter() -> None:
    mixed = np.random.default_rng(0).permutation(60)
    again = stratified_order([IDS[row] for row in mixed], LABELS[mixed], seed=0)
    assert [IDS[mixed[row]] for row in again] == [IDS[row] for row in stratified_order(IDS, LABELS, seed=0)]


def test_another_seed_gives_another_order() -> None:
    assert stratified_order(IDS, LABELS, seed=0).tolist() != stratified_order(IDS, LABELS, seed=1).tolist()


def test_rows_that_share_an_id_stay_together() -> None:
    order = stratified_order(["a", "b", "a", "c"], [0, 0, 0, 0], seed=0).tolist()
    assert abs(order.index(0) - order.index(2)) == 1


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(OptionError, match="seed is -1"):
        stratified_order(IDS, LABELS, seed=-1)
