"""Hashes that decide every committed result: none of these numbers may change."""

from benfourier.data import open_source, split, stratified_order
from benfourier.data.seeds import image_generator, image_seed
from benfourier.data.splits import hash_rank


def test_seeds_and_ranks_of_an_image_stay_as_they_are() -> None:
    assert image_seed(3, "a/1") == 1756834320
    assert hash_rank(3, "a/1") == 2240014752
    assert image_generator(1, "b").initial_seed() == 1313728653


def test_splits_and_orders_stay_as_they_are() -> None:
    ids, labels = [f"digits/{row:05d}" for row in range(30)], [row % 3 for row in range(30)]
    assert stratified_order(ids, labels, seed=5)[:6].tolist() == [18, 10, 29, 15, 4, 14]
    assert split(ids, labels, seed=2)["test"].tolist() == [4, 12, 14, 21, 22, 29]


def test_the_digest_of_a_source_stays_as_it_is() -> None:
    assert open_source("digits").digest.startswith("eb7e009fb5ca7611ebd0943f20d6b592")
