from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.covariance import EmpiricalCovariance, ledoit_wolf_shrinkage
from torch import Tensor, nn

import benfourier as bf
from benfourier.detectors.detector import numbers_of
from benfourier.detectors.fitting import measured
from benfourier.detectors.gaussians import gaussians_of
from benfourier.detectors.held_out import auroc, some
from benfourier.detectors.mahalanobis import MAGNITUDES, Mahalanobis
from benfourier.detectors.method import Lessons, Listening
from benfourier.detectors.nearest_class import Distances, Nudged
from benfourier.detectors.one_layer import averages
from benfourier.detectors.saving import load
from benfourier.errors import OptionError
from tests.detectors.toys import toys

Floats = NDArray[np.float64]


def learned(**options: object) -> Distances | Nudged:
    return Mahalanobis(**options).learn(toys().subject, Lessons(toys().fitted, None, False))  # type: ignore[arg-type]


def numbers(measure: Distances | Nudged, images: Tensor, ids: list[str] | None = None) -> Floats:
    names = ids or [f"query-{row}" for row in range(len(images))]
    return numbers_of(toys().subject, [measure], images, names, show_progress=False)[0].numpy()


def means_of_maps(images: Tensor, layer: int) -> Floats:
    """The averages of one layer of the toy network, straight from its modules."""
    module: nn.Sequential = toys().subject.module  # type: ignore[assignment]
    with torch.no_grad():
        found = module[: layer + 1](images).double().numpy()
    return np.asarray(found.reshape(*found.shape[:2], -1).mean(2))


def by_authors(rows: Floats, labels: Floats, queries: Floats) -> Floats:
    """The authors' formula with scikit-learn's empirical covariance: the half of the least squared distance."""
    means = np.stack([rows[labels == label].mean(0) for label in np.unique(labels)])
    left = rows - means[np.searchsorted(np.unique(labels), labels)]
    precision = EmpiricalCovariance(assume_centered=True).fit(left).precision_
    gaps = queries[:, None] - means
    return np.asarray(np.einsum("nkc,cd,nkd->nk", gaps, precision, gaps).min(1) / 2)


@pytest.mark.parametrize("layer", [2, 3, 5, 8])
def test_without_shrinkage_the_numbers_are_the_authors(layer: int) -> None:
    made = toys()
    measure = learned(layers=(str(layer),), shrinkage=0)
    images = torch.cat([made.tested.clean, made.tested.attacked["bim"]])
    wanted = by_authors(
        means_of_maps(made.fitted.clean, layer), made.fitted.labels.numpy(), means_of_maps(images, layer)
    )
    assert np.allclose(numbers(measure, images)[:, 0], wanted, rtol=1e-4)


def cloud(images: int, channels: int, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Correlated channels of very different sizes."""
    draw = torch.Generator().manual_seed(seed)
    mixing = torch.randn(channels, channels, generator=draw).double()
    sizes = 10 ** torch.linspace(-2, 2, channels).double()
    labels = torch.arange(images) % classes
    shift = torch.randn(classes, channels, generator=draw).double()
    return (torch.randn(images, channels, generator=draw).double() @ mixing + 3 * shift[labels]) * sizes + 5, labels


def in_full(rows: Tensor, labels: Tensor, queries: Tensor, delta: float, without: int | None = None) -> Floats:
    """Squared distances to every class by matrices of full size, one image left out if asked for."""
    data, classes = rows.numpy(), labels.numpy()
    every = np.stack([data[classes == c].mean(0) for c in range(int(classes.max()) + 1)])
    spread = np.sqrt(((data - every[classes]) ** 2).mean(0))
    kept = np.arange(len(data)) != (-1 if without is None else without)
    means = np.stack([data[kept & (classes == c)].mean(0) for c in range(len(every))])
    left = ((data - means[classes]) / spread)[kept]
    covariance = (1 - delta) * left.T @ left / len(data) + delta * np.eye(data.shape[1])
    gaps = (queries.numpy()[:, None] - means) / spread
    inverse = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    return np.asarray(np.einsum("nkc,cd,nkd->nk", gaps, inverse, gaps))


@pytest.mark.parametrize(("images", "channels"), [(60, 8), (30, 50)])
def test_shrunk_distances_are_those_of_full_matrices(images: int, channels: int) -> None:
    rows, labels = cloud(images, channels)
    queries = cloud(7, channels, seed=1)[0]
    gaussians, left = gaussians_of(rows, labels, None)
    assert gaussians.shrinkage == pytest.approx(ledoit_wolf_shrinkage(left.numpy(), assume_centered=True), rel=1e-6)
    assert 0 < gaussians.shrinkage < 1
    assert gaussians.frame.shape[1] == min(channels, images - 3)
    assert np.allclose(gaussians.distances(queries), in_full(rows, labels, queries, gaussians.shrinkage), rtol=1e-6)


@pytest.mark.parametrize(("images", "channels", "delta"), [(60, 8, 0.0), (60, 8, 0.2), (30, 50, 0.2), (30, 50, 0.0)])
def test_an_image_is_measured_as_if_it_had_not_been_learned(images: int, channels: int, delta: float) -> None:
    rows, labels = cloud(images, channels)
    gaussians, left = gaussians_of(rows, labels, delta)
    queries = rows + 0.1 * cloud(images, channels, seed=1)[0]  # twins
    found = gaussians.distances_without(queries, left, labels)
    wanted = [in_full(rows, labels, queries[row][None], delta, without=row)[0] for row in range(images)]
    assert np.allclose(found, np.stack(wanted), rtol=1e-6)


def test_images_with_their_ids_are_farther_than_without() -> None:
    fitted = toys().fitted
    measure = learned()
    known = numbers(measure, fitted.clean, list(fitted.ids))
    assert (known.mean(0) > numbers(measure, fitted.clean).mean(0)).all()
    half = numbers(measure, fitted.clean[5:15], list(fitted.ids[5:10]) + [f"other-{row}" for row in range(5)])
    assert np.allclose(half[:5], known[5:10], rtol=1e-5)
    assert np.allclose(half[5:], numbers(measure, fitted.clean[10:15]), rtol=1e-5)


def test_a_class_of_the_image_alone_is_no_class_for_it() -> None:
    rows, labels = cloud(30, 4, classes=2)
    labels[0] = 2
    gaussians, left = gaussians_of(rows, labels, 0.1)
    found = gaussians.distances_without(rows[:1], left[:1], labels[:1])
    assert found[0, 2] == torch.inf
    assert found[0, :2].isfinite().all()
    assert gaussians.distances(rows[:1])[0, 2] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("count", [12, 30])
def test_few_images_give_numbers_that_tell_far_from_near(count: int) -> None:
    examples = toys().fitted.take(np.arange(count))
    measure = Mahalanobis().learn(toys().subject, Lessons(examples, None, False))
    known = numbers(measure, examples.clean, list(examples.ids))
    strange = numbers(measure, torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert (np.median(strange[:, :2], 0) > np.median(known[:, :2], 0)).all()
    assert known.max() < 1e4


@pytest.mark.parametrize("count", [12, 30])
def test_few_images_give_finite_numbers_even_without_shrinkage(count: int) -> None:
    examples = toys().fitted.take(np.arange(count))
    measure = Mahalanobis(shrinkage=0).learn(toys().subject, Lessons(examples, None, False))
    assert np.isfinite(numbers(measure, examples.clean, list(examples.ids))).all()
    assert np.isfinite(numbers(measure, toys().tested.attacked["bim"])).all()


def test_directions_in_which_only_rounding_spreads_do_not_count() -> None:
    rows, labels = cloud(60, 4)
    same = torch.cat([rows, rows @ torch.ones(4, 1).double()], 1)
    exact = gaussians_of(same, labels, 0.0)[0]
    rounded = gaussians_of(same.float().double(), labels, 0.0)[0]
    assert exact.frame.shape[1] == rounded.frame.shape[1] == 4
    assert torch.allclose(exact.distances(same), rounded.distances(same), rtol=1e-3)


def test_classes_of_one_image_each_become_one_class() -> None:
    examples = toys().fitted
    firsts = [examples.labels.tolist().index(label) for label in range(10)]
    measure = Mahalanobis().learn(toys().subject, Lessons(examples.take(np.array(sorted(firsts))), None, False))
    assert measure.counts.tolist() == [10]
    assert numbers(measure, toys().tested.clean).min() > 0


def test_channels_that_never_change_do_not_count() -> None:
    rows, labels = cloud(60, 5)
    plain = gaussians_of(rows, labels, None)[0].distances(rows)
    dull = torch.cat([rows, torch.full((60, 1), 7.0), torch.zeros(60, 1)], 1).double()
    gaussians = gaussians_of(dull, labels, None)[0]
    assert torch.allclose(gaussians.distances(dull), plain)
    assert torch.allclose(gaussians.distances(dull + torch.tensor([0, 0, 0, 0, 0, 1.0, 1.0])), plain)


def test_batch_norm_says_what_the_layer_before_it_says() -> None:
    found = numbers(learned(layers=("0", "1"), shrinkage=0.1), toys().tested.clean)
    assert np.allclose(found[:, 0], found[:, 1], rtol=1e-4)
    assert learned().layers == ("0", "2", "3", "5", "6", "8")


def test_averages_are_over_positions() -> None:
    maps = torch.rand(2, 3, 4, 5)
    assert torch.allclose(averages(maps), maps.double().mean((2, 3)), atol=1e-6)
    tokens = torch.rand(2, 7, 3)
    assert torch.allclose(averages(tokens), tokens.double().mean(1), atol=1e-6)
    rows = torch.rand(2, 6)
    assert torch.equal(averages(rows), rows.double())


def test_a_nudge_goes_against_the_gradient_of_each_layer() -> None:
    made = toys()
    still, nudged = learned(layers=("3", "5")), learned(layers=("3", "5"), magnitude=0.002)
    assert isinstance(nudged, Nudged)
    images = made.tested.clean[:6]
    module: nn.Sequential = made.subject.module  # type: ignore[assignment]
    for column, layer in enumerate((3, 5)):
        leaf = images.clone().requires_grad_()
        rows = module[: layer + 1](leaf).flatten(2).mean(2) if layer == 3 else module[: layer + 1](leaf)
        names = [f"query-{row}" for row in range(6)]
        (slope,) = torch.autograd.grad(still.number(str(layer), rows.double(), names).sum(), leaf)
        moved = leaf.detach() - 0.002 * torch.where(slope >= 0, 1.0, -1.0)
        assert np.allclose(numbers(nudged, images)[:, column], numbers(still, moved)[:, column], rtol=1e-4)
    assert (numbers(nudged, images).mean(0) < numbers(still, images).mean(0)).all()


def test_a_nudge_is_measured_in_pixels_whatever_the_scaling() -> None:
    made = toys()
    undo = nn.Conv2d(1, 1, 1)  # mean, std and the wider bounds
    with torch.no_grad():
        undo.weight.fill_(0.5 / 2)
        undo.bias.fill_(0.1)  # type: ignore[union-attr]
    module = nn.Sequential(undo, *made.subject.module.children()).eval()
    other = bf.Subject(module, bounds=(0.0, 2.0), mean=[0.2], std=[0.5], size=8, channels=1)
    fitted, images = made.fitted, made.tested.clean[:8]
    attacked = {name: 2 * found for name, found in fitted.attacked.items()}
    doubled = replace(fitted, clean=2 * fitted.clean, noisy=2 * fitted.noisy, attacked=attacked)
    names = [f"query-{row}" for row in range(8)]
    measure = Mahalanobis(layers=("0", "3"), magnitude=0.01).learn(made.subject, Lessons(fitted, None, False))
    twice = Mahalanobis(layers=("1", "4"), magnitude=0.01).learn(other, Lessons(doubled, None, False))
    one, two = (
        numbers_of(subject, [m], pixels, names, show_progress=False)[0]
        for subject, m, pixels in ((made.subject, measure, images), (other, twice, 2 * images))
    )
    assert torch.allclose(one, two, rtol=1e-2)


def test_gradients_leave_the_subject_as_found() -> None:
    module = toys().subject.module
    before = [(p.requires_grad, p.grad is None) for p in module.parameters()]
    measure = learned(layers=("0",), magnitude=0.001)
    with torch.inference_mode():
        assert numbers(measure, toys().tested.clean[:3]).shape == (3, 1)
    assert [(p.requires_grad, p.grad is None) for p in module.parameters()] == before
    assert before[0] == (True, True)


@pytest.mark.parametrize("layer", ["3", "8"])
def test_the_magnitude_is_the_one_that_tells_held_out_sources_apart_best(layer: str) -> None:
    made = toys()
    examples = made.fitted.for_attack("bim")
    lessons = Lessons(examples, None, False)
    found = {}
    for magnitude in MAGNITUDES:
        measure = Mahalanobis(layers=(layer,), magnitude=magnitude).learn(made.subject, lessons)
        rows = measured(made.subject, measure, some(examples, seed=0), "trial", show_progress=False)
        found[magnitude] = auroc(rows.numbers.numpy(), rows, seed=0)
    chosen = Mahalanobis(layers=(layer,), magnitude="cv").learn(made.subject, lessons)
    assert chosen.magnitude == max(found, key=lambda m: found[m])
    assert isinstance(chosen, Listening) == (chosen.magnitude == 0)


def test_a_saved_detector_that_nudges_gives_bit_equal_scores(tmp_path: Path) -> None:
    made = toys()
    detector = Mahalanobis(magnitude=0.001, layers=("3",), C=1.0).fit(made.subject, made.fitted, show_progress=False)
    assert detector.needs == {"listens", "gradients"}
    detector.save(tmp_path / "m.bf")
    again = load(tmp_path / "m.bf", made.subject)
    ids = list(made.fitted.ids)
    assert np.array_equal(again.score(made.fitted.noisy, ids=ids), detector.score(made.fitted.noisy, ids=ids))


def test_images_beyond_the_examples_are_learned_from_under_the_authors_rules() -> None:
    made = toys()
    measure = Mahalanobis(rules="authors").learn(made.subject, Lessons(made.fitted, made.clean, False))
    assert int(measure.counts.sum()) == len(made.clean)
    assert measure.ids == ()


@pytest.mark.parametrize("options", [{"magnitude": -0.1}, {"shrinkage": 1.5}, {"shrinkage": "yes"}, {"layers": ()}])
def test_options_outside_their_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Mahalanobis(**options)  # type: ignore[arg-type]
