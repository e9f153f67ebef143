import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from sklearn.neighbors import KernelDensity
from torch import Tensor, nn

import benfourier as bf
from benfourier.detectors import kd_bu
from benfourier.detectors.catalogue import load
from benfourier.detectors.extractor import Concatenated, Extractor, ObservingExtractor
from benfourier.detectors.features import extract
from benfourier.detectors.fit import fit
from benfourier.detectors.kd_bu import (
    KDBU,
    Density,
    DropoutVariance,
    best_bandwidth,
    dropout_modules,
    last_hidden_layer,
    log_density,
    splits_at_first_dropout,
)
from benfourier.detectors.method import FitData
from benfourier.errors import ClassifierError, LayerError, OptionError
from benfourier.models.forward import INPUT
from benfourier.models.zoo import ZOO
from tests.detectors.toys import toys

Floats = NDArray[np.float64]


def learned(**options: object) -> Density:
    extractor = KDBU(bu=False, **options).fit_extractor(toys().classifier, FitData(toys().fitted, show_progress=False))  # type: ignore[arg-type]
    assert isinstance(extractor, Density)
    return extractor


def features(extractor: Extractor, images: Tensor, ids: list[str] | None = None) -> Tensor:
    names = ids or [f"query-{row}" for row in range(len(images))]
    return extract(toys().classifier, [extractor], images, names, show_progress=False)[0]


def variance(extractor: DropoutVariance, classifier: bf.Classifier, images: Tensor) -> Tensor:
    return extractor.extract(classifier, images, torch.empty(0), [])[:, 0]


def last_hidden(images: Tensor) -> Floats:
    module: nn.Sequential = toys().classifier.module  # type: ignore[assignment]
    with torch.no_grad():
        return np.asarray(module[:7](images).double())


def sklearn_density(points: Floats, width: float, rows: Floats) -> Floats:
    return np.asarray(KernelDensity(bandwidth=width).fit(points).score_samples(rows))


def test_kd_is_the_density_that_scikit_learn_computes() -> None:
    toy_data, extractor = toys(), learned()
    images = torch.cat([toy_data.tested.clean, toy_data.tested.adversarial["bim"]])
    rows, points = last_hidden(images), last_hidden(toy_data.fitted.clean)
    predicted = toy_data.classifier.logits(images).argmax(1).tolist()
    expected = [
        -sklearn_density(points[toy_data.fitted.labels.numpy() == label], extractor.bandwidth, row[None])[0]
        for label, row in zip(predicted, rows, strict=True)
    ]
    assert np.allclose(features(extractor, images)[:, 0], expected, rtol=1e-6)


def test_kd_is_the_sum_of_kernels_written_out() -> None:
    # scikit-learn's trees stop at a bound, and are then up to 27 nats away
    toy_data, extractor = toys(), learned(bandwidth=1.2)
    images = toy_data.tested.adversarial["bim"]
    rows, points = last_hidden(images), last_hidden(toy_data.fitted.clean)
    labels, predicted = toy_data.fitted.labels.numpy(), toy_data.classifier.logits(images).argmax(1).tolist()
    expected = []
    for row, label in zip(rows, predicted, strict=True):
        squared = ((points[labels == label] - row) ** 2).sum(1)
        normalised = np.exp(-squared / (2 * 1.2**2)) / (2 * math.pi * 1.2**2) ** (len(row) / 2)
        expected.append(-math.log(normalised.mean()))
    assert np.allclose(features(extractor, images)[:, 0], expected, rtol=1e-6)


def test_an_image_is_no_point_of_its_own_density() -> None:
    toy_data, extractor = toys(), learned(bandwidth=0.8)
    fitted, points = toy_data.fitted, last_hidden(toy_data.fitted.clean)
    labels, ids = fitted.labels.numpy(), list(fitted.ids)
    others = [(labels == labels[row]) & (np.arange(len(labels)) != row) for row in range(20)]
    expected = [-sklearn_density(points[mask], 0.8, points[row][None])[0] for row, mask in enumerate(others)]
    assert np.allclose(features(extractor, fitted.clean[:20], ids[:20])[:, 0], expected, rtol=1e-6)
    assert (features(extractor, fitted.clean[:20])[:, 0].numpy() < expected).all()


def some_points() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(40, 3, generator=draw).double(), torch.arange(4).repeat_interleave(10)


def test_a_class_without_points_has_the_density_of_all_less_the_log_of_their_number() -> None:
    points, labels = some_points()
    rows, none_left_out = (
        torch.randn(5, 3, generator=torch.Generator().manual_seed(1)),
        torch.zeros(5, 40, dtype=torch.bool),
    )
    densities = log_density(points, labels, 0.5, rows, torch.full((5,), 9), none_left_out)
    assert np.allclose(densities, sklearn_density(points.numpy(), 0.5, rows.numpy()) - math.log(40))


def test_a_class_whose_only_point_is_the_image_itself_counts_as_one_without_points() -> None:
    points, labels = some_points()
    labels[-1] = 7
    own = torch.zeros(1, 40, dtype=torch.bool)
    own[0, -1] = True
    densities = log_density(points, labels, 0.5, points[-1:], torch.tensor([7]), own)
    expected = sklearn_density(points[:-1].numpy(), 0.5, points[-1:].numpy()) - math.log(40)
    assert np.allclose(densities, expected)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images, extractor = toys().tested.clean, learned()
    whole = features(extractor, images)
    monkeypatch.setattr("benfourier.detectors.kd_bu.BLOCK", 1)
    assert torch.allclose(features(extractor, images), whole, rtol=1e-12)


def test_far_images_have_a_finite_density() -> None:
    points, labels = some_points()
    none_left_out = torch.zeros(1, 40, dtype=torch.bool)
    densities = log_density(points, labels, 0.01, torch.full((1, 3), 1e4), labels[:1], none_left_out)
    assert densities.isfinite().all()
    assert densities < -1e11


def test_the_bandwidth_is_the_likeliest_when_points_are_left_out_in_turn() -> None:
    points, labels = some_points()
    points[20:] *= 0.2
    parts = [points[labels == label].numpy() for label in range(4)]
    spread = np.sqrt(np.mean([((part - part.mean(0)) ** 2).mean() for part in parts]))
    likelihood = {
        width: sum(
            sklearn_density(np.delete(part, row, 0), width, part[row][None])[0] for part in parts for row in range(10)
        )
        for width in spread * kd_bu.FACTORS
    }
    assert best_bandwidth(points, labels, seed=0) == pytest.approx(max(likelihood, key=lambda width: likelihood[width]))


def test_copies_of_a_point_do_not_shrink_the_bandwidth() -> None:
    points, labels = some_points()
    twice = points.repeat_interleave(2, 0), labels.repeat_interleave(2)
    assert best_bandwidth(*twice, seed=0) == pytest.approx(best_bandwidth(points, labels, seed=0))


@pytest.mark.parametrize("points", [torch.zeros(6, 3), torch.randn(6, 3, generator=torch.Generator().manual_seed(0))])
def test_classes_of_one_image_still_give_a_bandwidth(points: Tensor) -> None:
    width = best_bandwidth(points.double(), torch.arange(6), seed=0)
    assert 0 < width < 10


@contextmanager
def dropping(module: nn.Module) -> Iterator[None]:
    """torch's own dropout, and nothing else, in training mode."""
    modules = [m for m in module.modules() if isinstance(m, nn.Dropout | nn.Dropout2d)]
    for m in modules:
        m.train()
    try:
        yield
    finally:
        module.eval()


def by_torch(classifier: bf.Classifier, images: Tensor, passes: int) -> Tensor:
    with torch.random.fork_rng(devices=[]), torch.no_grad(), dropping(classifier.module):
        torch.manual_seed(0)
        entering = classifier.normalise(images)
        posteriors = torch.stack([torch.softmax(classifier.module(entering).double(), 1) for _ in range(passes)], 1)
    return posteriors.var(1, correction=0).mean(1)


def test_bu_is_the_variance_that_torchs_own_dropout_gives() -> None:
    # 4000 passes: the relative deviation of a variance is about sqrt(kurtosis / 4000); 40 images of it average out, and
    # each of the two sums below deviates by less than 2 %. 10 % is five of these: false failure below 1e-6
    toy_data = toys()
    images = toy_data.tested.adversarial["bim"][:40]
    ours = variance(DropoutVariance(4000, 0, late=True), toy_data.classifier, images)
    assert float(ours.sum()) == pytest.approx(float(by_torch(toy_data.classifier, images, 4000).sum()), rel=0.1)


class Wide(nn.Module):
    """A residual network: after the dropout, copies of an image are added to the image itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
        self.drop, self.again, self.head = nn.Dropout2d(0.3), nn.Dropout(0.4), nn.Linear(6, 10)

    def forward(self, images: Tensor) -> Tensor:
        maps = torch.relu(self.first(images))
        maps = maps + self.second(self.drop(maps))
        return self.head(self.again(maps.mean((2, 3))))  # type: ignore[no-any-return]


def wide() -> bf.Classifier:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return bf.Classifier(Wide().eval(), size=8, channels=1)


def test_passes_split_at_the_first_dropout_where_they_can() -> None:
    toy_data = toys()
    images = toy_data.tested.clean[:6]
    assert splits_at_first_dropout(toy_data.classifier, images, seed=0)
    early, late = (
        torch.cat(list(DropoutVariance(5, 0, late=late).posteriors(toy_data.classifier, images)))
        for late in (False, True)
    )
    assert early.shape == (6, 5, 10)
    assert torch.allclose(early, late, atol=1e-6)


def test_passes_split_at_the_image_where_copies_would_be_added_to_it() -> None:
    classifier, images = wide(), toys().tested.clean[:20]
    assert not splits_at_first_dropout(classifier, images[:3], seed=0)
    # as above: 2000 passes, 20 images, within 10 %
    ours = variance(DropoutVariance(2000, 0, late=False), classifier, images)
    assert float(ours.sum()) == pytest.approx(float(by_torch(classifier, images, 2000).sum()), rel=0.1)


def test_dropout_of_channels_drops_whole_ones() -> None:
    classifier, images, seen = wide(), toys().tested.clean[:2], []
    module: Wide = classifier.module  # type: ignore[assignment]
    handle = module.second.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    list(DropoutVariance(8, 0, late=False).posteriors(classifier, images))
    handle.remove()
    dropped = seen[-1].flatten(2) == 0  # (images · passes, channels, positions)
    whole = dropped.all(2)
    assert 0.1 < whole.double().mean() < 0.5
    relu = torch.relu(module.first(images)).repeat_interleave(8, 0).flatten(2)
    assert torch.allclose(seen[-1].flatten(2)[~whole], relu[~whole] / 0.7, rtol=1e-4)


def test_masks_depend_on_the_image_and_the_seed_only(monkeypatch: pytest.MonkeyPatch) -> None:
    toy_data = toys()
    images = toy_data.tested.adversarial["bim"][:9]
    whole = variance(DropoutVariance(7, 0, late=True), toy_data.classifier, images)
    alone = torch.cat(
        [variance(DropoutVariance(7, 0, late=True), toy_data.classifier, image[None]) for image in images]
    )
    assert torch.allclose(whole, alone, rtol=1e-4)
    assert not torch.allclose(whole, variance(DropoutVariance(7, 1, late=True), toy_data.classifier, images), rtol=1e-2)
    for name in ("CACHED", "MEMORY"):
        monkeypatch.setattr(kd_bu, name, 3 * 32 * 4 * 3)  # three rows at once: passes in three parts
    assert torch.allclose(whole, variance(DropoutVariance(7, 0, late=True), toy_data.classifier, images), rtol=1e-4)


def test_hooks_are_removed_when_a_pass_fails() -> None:
    classifier = wide()
    classifier.layer_list()
    handle = classifier.module.head.register_forward_hook(lambda *_: 1 / 0)  # type: ignore[union-attr]
    with pytest.raises(ZeroDivisionError):
        list(DropoutVariance(2, 0, late=False).posteriors(classifier, toys().tested.clean[:2]))
    handle.remove()
    assert sum(len(m._forward_hooks) for m in classifier.module.modules()) == 0


class Functional(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.head, self.drop = nn.Linear(64, 10), nn.Dropout(p)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(F.dropout(self.drop(images.flatten(1)), 0.5, self.training))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("p", "names"), [(0.0, []), (0.2, ["drop"])])
def test_only_modules_that_drop_count_as_dropout(p: float, names: list[str]) -> None:
    classifier = bf.Classifier(Functional(p), size=8, channels=1)
    assert list(dropout_modules(classifier.module, classifier.layer_list())) == names


def test_a_network_without_dropout_gets_kd_alone_and_the_summary_says_so(tmp_path: Path) -> None:
    toy_data = toys()
    classifier = bf.Classifier(Functional(0.0).eval(), size=8, channels=1)
    examples = toy_data.fitted.for_attack("bim")
    detector = fit(KDBU(C=1.0, gamma="scale"), classifier, examples, show_progress=False)
    assert isinstance(detector.extractor, ObservingExtractor)
    assert detector.needs == {"forward"} < detector.method.needs
    assert "no Dropout module" in detector.summary["learned"]["bu"]
    detector.save(tmp_path / "kd.bf")
    ids = list(examples.ids)
    again = load(tmp_path / "kd.bf", classifier)
    assert np.array_equal(again.score(examples.clean, ids=ids), detector.score(examples.clean, ids=ids))
    with pytest.raises(ClassifierError, match="functional dropout is not seen"):
        fit(KDBU(bu=True), classifier, examples, show_progress=False)


def test_both_features_are_higher_for_attacked_images() -> None:
    toy_data = toys()
    extractor = KDBU().fit_extractor(toy_data.classifier, FitData(toy_data.fitted, show_progress=False))
    assert isinstance(extractor, Concatenated)
    clean, attacked = (
        features(extractor, toy_data.tested.clean),
        features(extractor, toy_data.tested.adversarial["bim"]),
    )
    assert (attacked.median(0).values > clean.median(0).values).all()


def test_points_come_from_images_beyond_the_examples_under_the_authors_rules() -> None:
    toy_data = toys()
    extractor = KDBU(rules="authors", bu=False).fit_extractor(
        toy_data.classifier, FitData(toy_data.fitted, toy_data.clean, show_progress=False)
    )
    assert isinstance(extractor, Density)
    assert sorted(extractor.ids) == sorted(toy_data.clean.ids)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("lid-mnist", "11"),
        ("lid-cifar10", "29"),
        ("lid-svhn", "15"),
        ("cifar-resnet20", "mean()"),
        ("alexnet", "classifier.5"),
    ],
)
def test_the_last_hidden_layer_is_found(name: str, layer: str) -> None:
    entry = ZOO[name]
    classifier = bf.Classifier(ZOO[name].factory(), size=entry.size, channels=entry.channels)
    assert last_hidden_layer(classifier.layer_list().layers) == layer


def test_a_network_without_hidden_layers_is_observed_at_its_input() -> None:
    toy_data = toys()
    classifier = bf.Classifier(Functional(0.0).eval(), size=8, channels=1)
    extractor = KDBU().fit_extractor(classifier, FitData(toy_data.fitted, show_progress=False))
    assert isinstance(extractor, Density)
    assert extractor.layers == (INPUT,)
    order = toy_data.fitted.labels.argsort(stable=True)
    assert torch.equal(extractor.points, toy_data.fitted.clean.flatten(1)[order])


def test_another_layer_can_be_named() -> None:
    assert learned(layer="3").points.shape[1] == 128
    with pytest.raises(LayerError, match="layer '33' not found"):
        learned(layer="33")
    with pytest.raises(OptionError, match="which 2 layers match"):
        learned(layer="type:Linear")


@pytest.mark.parametrize("options", [{"bandwidth": 0.0}, {"bandwidth": "auto"}, {"passes": 1}, {"bu": "yes"}])
def test_options_outside_their_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        KDBU(**options)  # type: ignore[arg-type]
