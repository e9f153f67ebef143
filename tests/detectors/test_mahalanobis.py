from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.covariance import EmpiricalCovariance, ledoit_wolf_shrinkage
from torch import Tensor, nn

import benfourier as bf
from benfourier.detectors.catalogue import load
from benfourier.detectors.feature_cache import feature_table
from benfourier.detectors.features import extract, few_sources, held_out_auroc
from benfourier.detectors.fit import fit
from benfourier.detectors.mahalanobis import (
    MAGNITUDES,
    ChannelAverages,
    ClassDistances,
    Mahalanobis,
    PerturbedClassDistances,
    fit_gaussians,
)
from benfourier.detectors.method import FitData
from benfourier.errors import OptionError
from tests.detectors.toys import toys

Floats = NDArray[np.float64]


def learned(**options: object) -> ClassDistances | PerturbedClassDistances:
    return Mahalanobis(**options).fit_extractor(toys().classifier, FitData(toys().fitted, show_progress=False))  # type: ignore[arg-type]


def features(
    extractor: ClassDistances | PerturbedClassDistances, images: Tensor, ids: list[str] | None = None
) -> Floats:
    names = ids or [f"query-{row}" for row in range(len(images))]
    return extract(toys().classifier, [extractor], images, names, show_progress=False)[0].numpy()


def distances_of(extractor: ClassDistances | PerturbedClassDistances) -> ClassDistances:
    return extractor.distances if isinstance(extractor, PerturbedClassDistances) else extractor


def means_of_maps(images: Tensor, layer: int) -> Floats:
    """The averages of one layer of the toy network, straight from its modules."""
    module: nn.Sequential = toys().classifier.module  # type: ignore[assignment]
    with torch.no_grad():
        maps = module[: layer + 1](images).double().numpy()
    return np.asarray(maps.reshape(*maps.shape[:2], -1).mean(2))


def by_authors(rows: Floats, labels: Floats, queries: Floats) -> Floats:
    """The authors' formula with scikit-learn's empirical covariance: the half of the least squared distance."""
    means = np.stack([rows[labels == label].mean(0) for label in np.unique(labels)])
    residuals = rows - means[np.searchsorted(np.unique(labels), labels)]
    precision = EmpiricalCovariance(assume_centered=True).fit(residuals).precision_
    differences = queries[:, None] - means
    return np.asarray(np.einsum("nkc,cd,nkd->nk", differences, precision, differences).min(1) / 2)


@pytest.mark.parametrize("layer", [2, 3, 5, 8])
def test_without_shrinkage_the_features_are_the_authors(layer: int) -> None:
    toy_data = toys()
    extractor = learned(layers=(str(layer),), shrinkage=0)
    images = torch.cat([toy_data.tested.clean, toy_data.tested.adversarial["bim"]])
    expected = by_authors(
        means_of_maps(toy_data.fitted.clean, layer), toy_data.fitted.labels.numpy(), means_of_maps(images, layer)
    )
    assert np.allclose(features(extractor, images)[:, 0], expected, rtol=1e-4)


def cloud(images: int, channels: int, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Correlated channels of very different sizes."""
    draw = torch.Generator().manual_seed(seed)
    mixing = torch.randn(channels, channels, generator=draw).double()
    sizes = 10 ** torch.linspace(-2, 2, channels).double()
    labels = torch.arange(images) % classes
    shift = torch.randn(classes, channels, generator=draw).double()
    return (torch.randn(images, channels, generator=draw).double() @ mixing + 3 * shift[labels]) * sizes + 5, labels


def test_a_singular_covariance_has_the_authors_pseudo_inverse() -> None:
    rows, labels = cloud(30, 50)
    queries = cloud(7, 50, seed=1)[0]
    gaussians = fit_gaussians(rows, labels, 0.0)
    assert gaussians.frame.shape[1] == 27  # 30 images less three means
    expected = by_authors(rows.numpy(), labels.numpy(), queries.numpy())
    assert np.allclose(gaussians.distances(queries).amin(1) / 2, expected, rtol=1e-6)


def in_full(rows: Tensor, labels: Tensor, queries: Tensor, delta: float, without: int | None = None) -> Floats:
    """Squared distances to every class by matrices of full size, one image left out if asked for."""
    data, classes = rows.numpy(), labels.numpy()
    every = np.stack([data[classes == c].mean(0) for c in range(int(classes.max()) + 1)])
    # without shrinkage channels keep their units: that decides what a pseudo-inverse is
    spread = np.sqrt(((data - every[classes]) ** 2).mean(0)) if delta else np.ones(data.shape[1])
    remaining = np.arange(len(data)) != (-1 if without is None else without)
    means = np.stack([data[remaining & (classes == c)].mean(0) for c in range(len(every))])
    residuals = ((data - means[classes]) / spread)[remaining]
    covariance = (1 - delta) * residuals.T @ residuals / len(data) + delta * np.eye(data.shape[1])
    differences = (queries.numpy()[:, None] - means) / spread
    inverse = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    return np.asarray(np.einsum("nkc,cd,nkd->nk", differences, inverse, differences))


@pytest.mark.parametrize(("images", "channels"), [(60, 8), (30, 50)])
def test_shrunk_distances_are_those_of_full_matrices(images: int, channels: int) -> None:
    rows, labels = cloud(images, channels)
    queries = cloud(7, channels, seed=1)[0]
    gaussians = fit_gaussians(rows, labels, None)
    assert gaussians.shrinkage == pytest.approx(
        ledoit_wolf_shrinkage(gaussians.residuals.numpy(), assume_centered=True), rel=1e-6
    )
    assert 0 < gaussians.shrinkage < 1
    assert gaussians.frame.shape[1] == min(channels, images - 3)
    assert np.allclose(gaussians.distances(queries), in_full(rows, labels, queries, gaussians.shrinkage), rtol=1e-6)


@pytest.mark.parametrize(("images", "channels", "delta"), [(60, 8, 0.0), (60, 8, 0.2), (30, 50, 0.2), (30, 50, 0.0)])
def test_an_image_is_measured_as_if_it_had_not_been_learned(images: int, channels: int, delta: float) -> None:
    rows, labels = cloud(images, channels)
    gaussians = fit_gaussians(rows, labels, delta)
    queries = rows + 0.1 * cloud(images, channels, seed=1)[0]  # twins
    distances = gaussians.distances_leaving_out(queries, gaussians.residuals, labels)
    expected = [in_full(rows, labels, queries[row][None], delta, without=row)[0] for row in range(images)]
    assert np.allclose(distances, np.stack(expected), rtol=1e-6)


def test_images_with_their_ids_are_farther_than_without() -> None:
    fitted = toys().fitted
    extractor = learned()
    known = features(extractor, fitted.clean, list(fitted.ids))
    assert (known.mean(0) > features(extractor, fitted.clean).mean(0)).all()
    half = features(extractor, fitted.clean[5:15], list(fitted.ids[5:10]) + [f"other-{row}" for row in range(5)])
    assert np.allclose(half[:5], known[5:10], rtol=1e-5)
    assert np.allclose(half[5:], features(extractor, fitted.clean[10:15]), rtol=1e-5)


def test_a_class_of_the_image_alone_is_no_class_for_it() -> None:
    rows, labels = cloud(30, 4, classes=2)
    labels[0] = 2
    gaussians = fit_gaussians(rows, labels, 0.1)
    distances = gaussians.distances_leaving_out(rows[:1], gaussians.residuals[:1], labels[:1])
    assert distances[0, 2] == torch.inf
    assert distances[0, :2].isfinite().all()
    assert gaussians.distances(rows[:1])[0, 2] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("count", [12, 30])
def test_few_images_give_larger_distances_for_noise_than_for_digits(count: int) -> None:
    examples = toys().fitted.take(np.arange(count))
    extractor = Mahalanobis().fit_extractor(toys().classifier, FitData(examples, show_progress=False))
    known = features(extractor, examples.clean, list(examples.ids))
    noise = features(extractor, torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert (np.median(noise[:, :2], 0) > np.median(known[:, :2], 0)).all()
    assert known.max() < 1e4


@pytest.mark.parametrize("count", [12, 30])
def test_few_images_give_finite_features_even_without_shrinkage(count: int) -> None:
    examples = toys().fitted.take(np.arange(count))
    extractor = Mahalanobis(shrinkage=0).fit_extractor(toys().classifier, FitData(examples, show_progress=False))
    assert np.isfinite(features(extractor, examples.clean, list(examples.ids))).all()
    assert np.isfinite(features(extractor, toys().tested.adversarial["bim"])).all()


def test_directions_in_which_only_rounding_spreads_do_not_count() -> None:
    rows, labels = cloud(60, 4)
    same = torch.cat([rows, rows @ torch.ones(4, 1).double()], 1)
    exact = fit_gaussians(same, labels, 0.0)
    rounded = fit_gaussians(same.float().double(), labels, 0.0)
    assert exact.frame.shape[1] == rounded.frame.shape[1] == 4
    assert torch.allclose(exact.distances(same), rounded.distances(same), rtol=1e-3)


def test_classes_of_one_image_each_become_one_class() -> None:
    examples = toys().fitted
    firsts = [examples.labels.tolist().index(label) for label in range(10)]
    extractor = Mahalanobis().fit_extractor(
        toys().classifier, FitData(examples.take(np.array(sorted(firsts))), show_progress=False)
    )
    assert distances_of(extractor).gaussians[0].counts.tolist() == [10]
    assert features(extractor, toys().tested.clean).min() > 0


def test_channels_that_never_change_do_not_count() -> None:
    rows, labels = cloud(60, 5)
    plain = fit_gaussians(rows, labels, None).distances(rows)
    padded = torch.cat([rows, torch.full((60, 1), 7.0), torch.zeros(60, 1)], 1).double()
    gaussians = fit_gaussians(padded, labels, None)
    assert torch.allclose(gaussians.distances(padded), plain)
    assert torch.allclose(gaussians.distances(padded + torch.tensor([0, 0, 0, 0, 0, 1.0, 1.0])), plain)


def test_batch_norm_gives_the_distances_of_the_layer_before_it() -> None:
    distances = features(learned(layers=("0", "1"), shrinkage=0.1), toys().tested.clean)
    assert np.allclose(distances[:, 0], distances[:, 1], rtol=1e-4)
    assert distances_of(learned()).layers == ("0", "2", "3", "5", "6", "8")


def averages_of(activation: Tensor) -> Tensor:
    return ChannelAverages(("layer",)).reduce("layer", activation)


def test_averages_are_over_positions() -> None:
    maps = torch.rand(2, 3, 4, 5)
    assert torch.allclose(averages_of(maps), maps.double().mean((2, 3)), atol=1e-6)
    tokens = torch.rand(2, 7, 3)
    assert torch.allclose(averages_of(tokens), tokens.double().mean(1), atol=1e-6)
    rows = torch.rand(2, 6)
    assert torch.equal(averages_of(rows), rows.double())


def test_the_perturbation_goes_against_the_gradient_of_each_layer() -> None:
    toy_data = toys()
    unperturbed, perturbed = learned(layers=("3", "5")), learned(layers=("3", "5"), magnitude=0.002)
    assert isinstance(perturbed, PerturbedClassDistances)
    images = toy_data.tested.clean[:6]
    module: nn.Sequential = toy_data.classifier.module  # type: ignore[assignment]
    for column, layer in enumerate((3, 5)):
        leaf = images.clone().requires_grad_()
        rows = module[: layer + 1](leaf).flatten(2).mean(2) if layer == 3 else module[: layer + 1](leaf)
        names = [f"query-{row}" for row in range(6)]
        (distances,) = distances_of(unperturbed).by_layer({str(layer): rows.double()}, names)
        (slope,) = torch.autograd.grad(distances.sum(), leaf)
        moved = leaf.detach() - 0.002 * torch.where(slope >= 0, 1.0, -1.0)
        assert np.allclose(features(perturbed, images)[:, column], features(unperturbed, moved)[:, column], rtol=1e-4)
    assert (features(perturbed, images).mean(0) < features(unperturbed, images).mean(0)).all()


def test_the_perturbation_is_measured_in_pixels_whatever_the_scaling() -> None:
    toy_data = toys()
    undo = nn.Conv2d(1, 1, 1)  # mean, std and the wider bounds
    with torch.no_grad():
        undo.weight.fill_(0.5 / 2)
        undo.bias.fill_(0.1)  # type: ignore[union-attr]
    module = nn.Sequential(undo, *toy_data.classifier.module.children()).eval()
    other = bf.Classifier(module, bounds=(0.0, 2.0), mean=[0.2], std=[0.5], size=8, channels=1)
    fitted, images = toy_data.fitted, toy_data.tested.clean[:8]
    attacked = {name: 2 * adversarial for name, adversarial in fitted.adversarial.items()}
    doubled = replace(fitted, clean=2 * fitted.clean, noisy={"noisy": 2 * fitted.noisy["noisy"]}, adversarial=attacked)
    names = [f"query-{row}" for row in range(8)]
    extractor = Mahalanobis(layers=("0", "3"), magnitude=0.01).fit_extractor(
        toy_data.classifier, FitData(fitted, show_progress=False)
    )
    twice = Mahalanobis(layers=("1", "4"), magnitude=0.01).fit_extractor(other, FitData(doubled, show_progress=False))
    one, two = (
        extract(classifier, [m], pixels, names, show_progress=False)[0]
        for classifier, m, pixels in ((toy_data.classifier, extractor, images), (other, twice, 2 * images))
    )
    assert torch.allclose(one, two, rtol=1e-2)


def test_gradients_leave_the_classifier_as_found() -> None:
    module = toys().classifier.module
    before = [(p.requires_grad, p.grad is None) for p in module.parameters()]
    extractor = learned(layers=("0",), magnitude=0.001)
    with torch.inference_mode():
        assert features(extractor, toys().tested.clean[:3]).shape == (3, 1)
    assert [(p.requires_grad, p.grad is None) for p in module.parameters()] == before
    assert before[0] == (True, True)


@pytest.mark.parametrize("layer", ["3", "8"])
def test_the_magnitude_is_the_one_that_separates_held_out_sources_best(layer: str) -> None:
    toy_data = toys()
    examples = toy_data.fitted.for_attack("bim")
    data = FitData(examples, show_progress=False)
    aurocs = {}
    for magnitude in MAGNITUDES:
        extractor = Mahalanobis(layers=(layer,), magnitude=magnitude).fit_extractor(toy_data.classifier, data)
        rows = feature_table(
            toy_data.classifier, extractor, few_sources(examples, seed=0), "trial", show_progress=False
        )
        aurocs[magnitude] = held_out_auroc(rows.features.numpy(), rows, seed=0)
    chosen = Mahalanobis(layers=(layer,), magnitude="cv").fit_extractor(toy_data.classifier, data)
    magnitude = chosen.magnitude if isinstance(chosen, PerturbedClassDistances) else 0
    assert magnitude == max(aurocs, key=lambda m: aurocs[m])


def test_a_saved_detector_that_perturbs_images_gives_bit_equal_scores(tmp_path: Path) -> None:
    toy_data = toys()
    options = Mahalanobis(magnitude=0.001, layers=("3",), C=1.0)
    detector = fit(options, toy_data.classifier, toy_data.fitted, show_progress=False)
    assert detector.needs == {"forward", "gradients"}
    detector.save(tmp_path / "m.bf")
    again = load(tmp_path / "m.bf", toy_data.classifier)
    ids = list(toy_data.fitted.ids)
    assert np.array_equal(
        again.score(toy_data.fitted.noisy["noisy"], ids=ids), detector.score(toy_data.fitted.noisy["noisy"], ids=ids)
    )


def test_images_beyond_the_examples_are_learned_from_under_the_authors_rules() -> None:
    toy_data = toys()
    extractor = Mahalanobis(rules="authors").fit_extractor(
        toy_data.classifier, FitData(toy_data.fitted, toy_data.clean, show_progress=False)
    )
    assert int(distances_of(extractor).gaussians[0].counts.sum()) == len(toy_data.clean)
    assert distances_of(extractor).ids == ()


@pytest.mark.parametrize("options", [{"magnitude": -0.1}, {"shrinkage": 1.5}, {"shrinkage": "yes"}, {"layers": ()}])
def test_options_outside_their_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Mahalanobis(**options)  # type: ignore[arg-type]
