"""The paper's numbers, as the package holds them."""

import pytest

from benfourier.errors import OptionError
from benfourier.report.paper import (
    CITATION,
    DATABASES,
    SLIPS,
    VGG19,
    Paper,
    PaperNumber,
    all_cells,
    database_of,
    guess_database,
)
from benfourier.store.vocabulary import ProtocolName

SAME, OTHER, OTHER_DATA, *_ = ProtocolName
ATTACKS = ("bim", "cw-l2", "deepfool", "r-pgd")


def test_a_known_number_is_found() -> None:
    paper = Paper("cifar10")
    assert paper.beside(SAME, "auroc", "mbf", "", "deepfool") == PaperNumber((96.9,))
    assert paper.beside(OTHER, "auroc", "lid", "cw-l2", "bim") == PaperNumber((90.3,))
    assert paper.beside(OTHER, "accuracy", "kd-bu", "bim", "r-pgd") == PaperNumber((73.8,))
    assert paper.number("running-time", detector="mbf") == PaperNumber((369.0,))


def test_a_slip_comes_with_both_printed_values() -> None:
    number = Paper("svhn").beside(SAME, "accuracy", "mbf", "", "deepfool")
    assert number is not None
    assert number.values == (91.8, 97.3)
    assert "repeats that of CIFAR-10" in number.doubt
    assert str(number) == "91.8 or 97.3?"


def test_a_slip_off_the_diagonal_has_one_value_and_its_doubt() -> None:
    paper = Paper("imagenet-vgg16")
    on, off = (paper.beside(OTHER, "accuracy", "mbf", "bim", attack) for attack in ("bim", "cw-l2"))
    assert on is not None
    assert off is not None
    assert on.values == (98.6, 99.6)
    assert len(off.values) == 1
    assert on.doubt == off.doubt != ""


def test_where_two_values_are_printed_both_are_compared_and_the_farther_one_counts() -> None:
    assert PaperNumber((91.8, 97.3)).differences(97.0) == pytest.approx((5.2, -0.3))
    assert PaperNumber((91.8, 97.3)).difference(97.0) == pytest.approx(5.2)
    assert PaperNumber((91.8, 97.3)).difference(92.0) == pytest.approx(-5.3)


def test_mnist_has_its_defense_gan_table_only() -> None:
    paper = Paper("mnist")
    assert paper.beside(SAME, "auroc", "defense-gan", "", "bim") == PaperNumber((74.4,))
    assert paper.beside(SAME, "auroc", "mbf", "", "cw-l2") == PaperNumber((99.1,))
    assert paper.beside(SAME, "accuracy", "mbf", "", "bim") is None
    assert paper.beside(SAME, "auroc", "lid", "", "bim") is None
    assert paper.beside(OTHER, "auroc", "mbf", "bim", "bim") is None


def test_beside_defense_gan_stands_the_row_of_the_same_effort_or_else_the_largest() -> None:
    paper, same, other = Paper("mnist"), "defense-gan 100 × 2", "defense-gan 60 × 2"
    assert paper.beside(SAME, "auroc", same, "", "bim") == PaperNumber((61.2,))
    assert paper.beside(SAME, "auroc", other, "", "bim") == PaperNumber((74.4,))
    assert (paper.gan_effort(same), paper.gan_effort(other)) == ("100 × 2", "200 × 10")


def test_ks_numbers_are_found_by_study_and_split_in_either_order_of_the_pair() -> None:
    paper = Paper("cifar10")
    assert paper.ks("h1", "test", "deepfool") == PaperNumber((0.216,), digits=3)
    assert (
        paper.ks("h2.1", "train", "clean|noisy")
        == paper.ks("h2.1", "train", "noisy|clean")
        == PaperNumber((0.64,), digits=3)
    )
    assert paper.ks("h2-sources", "train|test", "bim") == PaperNumber((0.333,), digits=3)
    assert str(paper.ks("h2.2", "train", "clean|bim")) == "0.000"


def test_data_transfer_is_there_for_imagenet_only() -> None:
    assert Paper("imagenet-alexnet").beside(OTHER_DATA, "auroc", "mbf", "", "bim") == PaperNumber((99.1,))
    assert Paper("cifar10").beside(OTHER_DATA, "auroc", "mbf", "", "bim") is None


@pytest.mark.parametrize("database", [name for name in DATABASES if name not in ("mnist", VGG19)])
@pytest.mark.parametrize("detector", ["kd-bu", "mahalanobis", "lid", "mbf"])
def test_all_cells_of_the_large_tables_are_there(database: str, detector: str) -> None:
    paper = Paper(database)
    for metric in ("auroc", "accuracy"):
        assert all(paper.beside(SAME, metric, detector, "", attack) for attack in ATTACKS)
        assert all(paper.beside(OTHER, metric, detector, fit, test) for fit in ATTACKS for test in ATTACKS)


@pytest.mark.parametrize(
    ("source", "network", "database"),
    [
        ("cifar10:data", "lid-cifar10", "cifar10"),
        ("CIFAR-10", "LID_cifar10", "cifar10"),
        ("CIFAR-10", "", "none"),
        ("cifar10:test", "cifar-resnet20 validated", "none"),
        ("cifar10:test", "vgg19", "cifar10-vgg19"),
        ("svhn:test", "resnet20", "none"),
        ("mnist-5k", "small-mnist", "none"),
        ("svhn", "lid-svhn", "svhn"),
        ("mnist-5k", "lid-mnist", "mnist"),
        ("fashion-mnist", "lid-mnist", "none"),
        ("imagenet-8", "alexnet", "imagenet-alexnet"),
        ("imagenet-8", "vgg16", "imagenet-vgg16"),
        ("imagenet-8", "efficientnet-lite0", "none"),
        ("digits", "my.module:net", "none"),
    ],
)
def test_the_database_is_guessed_from_data_and_network(source: str, network: str, database: str) -> None:
    assert guess_database(source, network) == database


def test_data_are_known_without_a_network() -> None:
    assert [database_of(source) for source in ("CIFAR-10:test", "svhn", "mnist-5k", "fashion-mnist", "imagenet8")] == [
        "cifar10", "svhn", "mnist", "none", "none",
    ]  # fmt: skip


def test_an_unknown_database_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(OptionError, match=r"paper is 'cifar'; allowed: cifar10, .*none; did you mean 'cifar10'"):
        Paper("cifar")


def test_the_slips_are_listed_and_the_source_is_cited() -> None:
    assert len(SLIPS) == 4
    assert "arXiv:2005.05552" in CITATION


def test_every_cell_has_a_place_of_its_own() -> None:
    places = [frozenset(cell.place.items()) for cell in all_cells()]
    assert len(places) == len(set(places)) == 868
