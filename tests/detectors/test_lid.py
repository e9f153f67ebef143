import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import benfourier as bf
from benfourier.detectors import lid
from benfourier.detectors.catalogue import load, make_method
from benfourier.detectors.extractor import ObservingExtractor
from benfourier.detectors.feature_cache import FeatureCache, feature_table
from benfourier.detectors.features import extract, extract_batch, few_sources, held_out_auroc
from benfourier.detectors.fit import fit
from benfourier.detectors.kd_bu import KDBU
from benfourier.detectors.lid import KS, LID, Dimensions, ReferenceActivations, local_dimensions, matrix
from benfourier.detectors.mahalanobis import Mahalanobis
from benfourier.detectors.method import FitData
from benfourier.errors import InputError, LayerError, OptionError
from benfourier.models.forward import INPUT
from benfourier.models.zoo import ZOO
from benfourier.store import artifact
from tests.detectors.toys import toys

Floats = NDArray[np.float64]


def learned(**options: object) -> Dimensions:
    return LID(**options).fit_extractor(toys().classifier, FitData(toys().fitted, show_progress=False))  # type: ignore[arg-type]


def features(extractor: Dimensions, images: Tensor, ids: Sequence[str] | None = None) -> Floats:
    names = ids or [f"query-{row}" for row in range(len(images))]
    return extract(toys().classifier, [extractor], images, names, show_progress=False)[0].numpy()


def activations(images: Tensor) -> list[Floats]:
    """The image, every module's activation, and the posteriors, straight from the toy network."""
    module: nn.Sequential = toys().classifier.module  # type: ignore[assignment]
    outputs = [images]
    with torch.no_grad():
        for part in module:
            outputs.append(part(outputs[-1].clone()))
        outputs.append(torch.softmax(outputs[-1].double(), 1))
    return [activation.double().flatten(1).numpy() for activation in outputs]


def pairs(images: Tensor, extractor: Dimensions) -> list[tuple[Floats, Floats]]:
    """Activations of the images and of the references, layer by layer."""
    return list(zip(activations(images), activations(extractor.images), strict=True))


def naive(rows: Floats, references: Floats, k: int, left_out: Sequence[int | None], official: bool = False) -> Floats:
    """The formula, image by image; left_out names the reference that does not count."""
    dimensions = []
    for row, without in zip(rows, left_out, strict=True):
        distances = [math.dist(row, other) for place, other in enumerate(references) if place != without]
        nearest = [max(r, 1e-12) for r in sorted(distances)[int(official) :][:k]]
        dimensions.append(-k / sum(math.log(r / nearest[-1]) for r in nearest))
    return np.array(dimensions)


def test_the_features_are_those_of_a_plain_loop() -> None:
    toy_data, extractor = toys(), learned(batch=60)
    images = torch.cat([toy_data.tested.clean[:15], toy_data.tested.adversarial["bim"][:15]])
    expected = [naive(a, b, 20, [None] * 30) for a, b in pairs(images, extractor)]
    assert np.allclose(features(extractor, images), np.stack(expected, 1), rtol=1e-3)


def test_an_image_is_no_neighbour_of_itself_or_of_its_twins() -> None:
    toy_data, extractor = toys(), learned(batch=60)
    rows = [toy_data.fitted.ids.index(name) for name in extractor.ids[:10]]
    images, ids = toy_data.fitted.noisy["noisy"][rows], extractor.ids[:10]
    expected = [naive(a, b, 20, range(10)) for a, b in pairs(images, extractor)]
    assert np.allclose(features(extractor, images, ids), np.stack(expected, 1), rtol=1e-3)
    assert not np.allclose(features(extractor, images), np.stack(expected, 1), rtol=0.02)
    clean = extractor.images[:10]
    expected = [naive(a, b, 20, range(10)) for a, b in pairs(clean, extractor)]
    assert np.allclose(features(extractor, clean, ids), np.stack(expected, 1), rtol=1e-3)


def test_the_official_way_leaves_the_nearest_out_whichever_it_is() -> None:
    toy_data, extractor = toys(), learned(batch=60, official=True)
    images = torch.cat([toy_data.tested.clean[:10], extractor.images[:5]])
    expected = [naive(a, b, 20, [None] * 15, official=True) for a, b in pairs(images, extractor)]
    assert np.allclose(features(extractor, images), np.stack(expected, 1), rtol=1e-3)


def test_several_mini_batches_are_averaged() -> None:
    toy_data, extractor = toys(), learned(batch=40, references=2, k=10)
    assert len(set(extractor.ids)) == 80
    images = toy_data.tested.clean[:10]
    both = [
        np.stack(
            [naive(a, b[part], 10, [None] * 10) for a, b in pairs(images, extractor)],
            1,
        )
        for part in (slice(0, 40), slice(40, 80))
    ]
    assert np.allclose(features(extractor, images), np.mean(both, 0), rtol=1e-3)


def test_mini_batches_share_images_where_there_are_too_few() -> None:
    extractor = learned(batch=100, references=3)
    names = np.array(extractor.ids).reshape(3, 100)
    assert all(len(set(batch)) == 100 for batch in names)
    assert len(set(extractor.ids)) == len(toys().fitted)


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
def test_near_neighbours_keep_their_digits(gap: float) -> None:
    # float32 holds an entry to 6e-8 of itself, so a gap of 1e-6 to a few per cent, and its length to far better
    draw = torch.Generator().manual_seed(0)
    middle = torch.randn(1, 3000, generator=draw)
    rows = 5 + middle + torch.randn(50, 3000, generator=draw)
    queries = rows[:4] + gap * torch.randn(4, 3000, generator=draw)
    centre = rows.mean(0)
    distances = ReferenceActivations(rows - centre, centre).squared_distances(queries).double()
    expected = torch.cdist(queries.double(), rows.double(), compute_mode="donot_use_mm_for_euclid_dist").square()
    assert torch.allclose(distances, expected, rtol=0.02)
    assert torch.allclose(distances[:, 4:], expected[:, 4:], rtol=1e-5)


def test_copies_among_the_neighbours_give_finite_features() -> None:
    extractor = learned(batch=60, k=10)
    images = extractor.images[:1].repeat(3, 1, 1, 1)
    dimensions = features(extractor, images)
    assert np.isfinite(dimensions).all()
    assert (dimensions > 0).all()


def test_neighbours_that_all_coincide_have_no_dimension() -> None:
    assert local_dimensions(torch.zeros(1, 30), (20,), 50) == 0


def test_neighbours_that_are_all_equally_far_have_as_many_dimensions_as_there_are_entries() -> None:
    assert local_dimensions(torch.ones(1, 30), (20,), 50) == 50


def test_points_in_a_cube_have_its_dimension() -> None:
    # the estimate from k = 100 of 20000 points deviates by 10 %, the mean over 200 queries by less than 1 %
    draw = torch.Generator().manual_seed(0)
    points = torch.rand(20000, 3, generator=draw)
    queries = 0.3 + 0.4 * torch.rand(200, 3, generator=draw)
    dimensions = local_dimensions(torch.cdist(queries, points).square(), (100,), 10)
    assert float(dimensions.mean()) == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize(("name", "count"), [("lid-cifar10", 34), ("lid-svhn", 20), ("lid-mnist", 16)])
def test_the_authors_networks_give_one_number_per_layer_and_one_for_the_image(name: str, count: int) -> None:
    entry = ZOO[name]
    classifier = bf.Classifier(ZOO[name].factory(), mean=entry.scaling[0], size=entry.size, channels=entry.channels)
    images = torch.rand(12, entry.channels, entry.size, entry.size, generator=torch.Generator().manual_seed(0))
    toy_examples = toys().fitted.take(np.arange(12))
    examples = bf.Examples(
        clean=images,
        noisy={"noisy": images},
        adversarial={"bim": images},
        success={"bim": torch.ones(12, dtype=torch.bool)},
        labels=toy_examples.labels,
        ids=toy_examples.ids,
        noise_levels={"noisy": 0.0},
        counts=toy_examples.counts,
        seed=0,
    )
    extractor = LID(batch=10, k=5).fit_extractor(classifier, FitData(examples, show_progress=False))
    assert len(extractor.layers) == count
    assert extractor.layers[0] == INPUT
    (dimensions,) = extract(classifier, [extractor], images[10:], ["a", "b"], show_progress=False)
    assert dimensions.shape == (2, count)


def test_layers_can_be_chosen() -> None:
    assert learned(pass_through=False).layers == (INPUT, "0", "1", "2", "3", "5", "6", "8", "soft-max")
    assert learned(layers=("type:Linear", INPUT)).layers == (INPUT, "5", "8")
    assert learned(layers=INPUT).layers == (INPUT,)
    with pytest.raises(LayerError, match="'conv9' not found"):
        learned(layers=("conv9",))


def test_the_image_is_observed_as_it_enters_the_module() -> None:
    toy_data = toys()
    classifier = bf.Classifier(toy_data.classifier.module, mean=[0.5], std=[0.25], size=8, channels=1)
    extractor = LID(layers=(INPUT,)).fit_extractor(classifier, FitData(toy_data.fitted, show_progress=False))
    known = extractor.references[INPUT]
    assert torch.allclose(known.rows + known.mean, ((extractor.images - 0.5) / 0.25).flatten(1), atol=1e-5)


def test_maps_become_rows_in_one_order_whatever_their_layout() -> None:
    maps = torch.rand(2, 3, 4, 5)
    assert torch.equal(matrix(maps), matrix(maps.contiguous(memory_format=torch.channels_last)))
    assert matrix(torch.rand(2, 7, 3)).shape == (2, 21)


def test_neighbours_are_clean_images_that_the_classifier_is_fitted_to() -> None:
    toy_data = toys()
    detector = fit(LID(C=1.0, gamma="scale", batch=50), toy_data.classifier, toy_data.fitted, show_progress=False)
    extractor = detector.extractor
    assert isinstance(extractor, Dimensions)
    for name, image in zip(extractor.ids, extractor.images, strict=True):
        assert torch.equal(image, toy_data.fitted.clean[toy_data.fitted.ids.index(name)])
    assert detector.summary["learned"] == {"batch": 50, "k": 20, "official": False}


def test_a_mini_batch_shrinks_to_the_images_available() -> None:
    assert learned(batch=100).batch == 100
    assert learned(batch=1000).batch == len(toys().fitted)
    few = toys().fitted.take(np.arange(15))
    with pytest.raises(InputError, match="15 clean images to take neighbours from; 20 neighbours need at least 21"):
        LID().fit_extractor(toys().classifier, FitData(few, show_progress=False))


def test_k_is_the_one_that_separates_held_out_sources_best() -> None:
    toy_data = toys()
    examples = toy_data.fitted.for_attack("bim")
    data = FitData(examples, show_progress=False)
    aurocs = {}
    for k in [k for k in KS if k < 60]:
        extractor = LID(k=k, batch=60, layers=("3", "6")).fit_extractor(toy_data.classifier, data)
        rows = feature_table(
            toy_data.classifier, extractor, few_sources(examples, seed=0), "trial", show_progress=False
        )
        aurocs[k] = held_out_auroc(rows.features.numpy(), rows, seed=0)
    assert LID(k="cv", batch=60, layers=("3", "6")).fit_extractor(toy_data.classifier, data).k == max(
        aurocs, key=lambda k: aurocs[k]
    )


def test_a_file_holds_the_reference_images_and_not_the_activations(tmp_path: Path) -> None:
    toy_data = toys()
    detector = fit(LID(C=1.0, gamma="scale", batch=50), toy_data.classifier, toy_data.fitted, show_progress=False)
    detector.save(tmp_path / "lid.bf")
    again = load(tmp_path / "lid.bf", toy_data.classifier)
    ids = list(toy_data.fitted.ids)
    assert np.array_equal(
        again.score(toy_data.fitted.noisy["noisy"], ids=ids), detector.score(toy_data.fitted.noisy["noisy"], ids=ids)
    )
    _, arrays = artifact.read(tmp_path / "lid.bf", "benfourier-detector", 2)
    assert [name for name in arrays if name.startswith("extractors/")] == ["extractors/0/state/images"]


def test_activations_are_stored_in_half_precision_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    images = toys().tested.clean
    whole = features(learned(batch=60), images)
    monkeypatch.setattr(lid, "FULL", 0)
    monkeypatch.setattr(lid, "LARGE", 500)
    monkeypatch.setattr(lid, "PIECE", 100)
    extractor = learned(batch=60)
    narrow = [name for name in extractor.layers if extractor.references[name].rows.dtype == torch.bfloat16]
    assert narrow == ["0", "1", "2"]
    assert np.allclose(features(extractor, images), whole, rtol=0.03)
    monkeypatch.setattr(lid, "MOST", 1000)
    with pytest.raises(InputError, match="choose some layers, or a smaller mini-batch"):
        features(learned(batch=60), images)


def shared_pool(images: Tensor, ids: Sequence[str]) -> FeatureCache:
    """A cache whose fits take their references from those images."""
    pool = bf.LabelledImages(images, torch.zeros(len(images), dtype=torch.long), tuple(ids))
    return FeatureCache(toys().classifier, "network", [], reference_pool=pool)


def test_distances_to_a_pool_are_shared_where_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    toy_data = toys()
    images, ids = toy_data.fitted.clean, toy_data.fitted.ids
    pool = shared_pool(images, ids)

    def shared(cache: FeatureCache, **options: Any) -> bool:
        data = FitData(toy_data.fitted.take(np.arange(60)), show_progress=False, cache=cache)
        return LID(k=10, **options).fit_extractor(toy_data.classifier, data).pool is not None

    assert shared(pool, batch=30)
    assert not shared(pool, batch=29)  # a quarter of the pool at least
    assert not shared(shared_pool(images[:59], ids[:59]))
    assert not shared(shared_pool(images.flip(3), ids))
    monkeypatch.setattr(lid, "WIDEST", 120 * 10)
    assert not shared(pool)
    assert shared(pool, pass_through=False)
    monkeypatch.setattr(lid, "FULL", 4 * 60 * 64)
    assert not shared(pool, layers=(INPUT,))  # it would be stored in half precision, and the references are not
    monkeypatch.setattr(lid, "FULL", 4 * 120 * 64)
    assert shared(pool, layers=(INPUT,))
    monkeypatch.setattr(lid, "MOST", 2 * 120 * 64 - 1)
    assert not shared(pool, layers=(INPUT,))


def test_fits_that_share_distances_hold_one_set_of_activations_while_one_is_in_use(tmp_path: Path) -> None:
    toy_data = toys()
    examples = toy_data.fitted.for_attack("bim")
    references = bf.LabelledImages(toy_data.fitted.clean, toy_data.fitted.labels, toy_data.fitted.ids)
    pool = [examples.clean, examples.noisy["noisy"], examples.adversarial["bim"]]
    cache = FeatureCache(toy_data.classifier, "network", pool, reference_pool=references)
    halves = [examples.take(np.arange(80)), examples.take(np.arange(30, 120))]
    options = LID(C=1.0, gamma="scale", batch=50)
    detectors = [fit(options, toy_data.classifier, half, show_progress=False, cache=cache) for half in halves]
    one, other = (detector.extractor for detector in detectors)
    assert isinstance(one, Dimensions)
    assert isinstance(other, Dimensions)
    assert one.ids != other.ids
    assert list(cache._parts.values()) == [one.pool]
    assert other.pool is not None
    assert "references" not in vars(other.pool)  # the first fit's were used
    plain = fit(options, toy_data.classifier, halves[0], show_progress=False)
    expected = plain.score(toy_data.tested.clean, show_progress=False)
    assert detectors[0].score(toy_data.tested.clean, show_progress=False) == pytest.approx(expected, abs=1e-4)
    detectors[0].save(tmp_path / "lid.bf")
    again = load(tmp_path / "lid.bf", toy_data.classifier).score(toy_data.tested.clean, show_progress=False)
    assert again == pytest.approx(expected, abs=1e-4)
    del one, other, detectors
    assert not cache._parts


def test_the_official_dimension_has_no_limit() -> None:
    """Distances that differ by a thousandth have a dimension far beyond the ten entries of a soft-max layer."""
    squared = torch.linspace(1.0, 1.001, 31).double().unsqueeze(0)
    assert local_dimensions(squared, (20,), 10) == 10
    logs = squared[0, 1:21].log() / 2
    expected = 20 / float((logs[-1] - logs).sum())
    assert float(local_dimensions(squared, (20,), lid.GREATEST, without_nearest=True)) == pytest.approx(expected)
    assert expected > 1000


def test_gradients_reach_the_image_through_detectors_that_observe() -> None:
    toy_data = toys()
    for method in (LID(), Mahalanobis(), KDBU(bu=False)):
        extractor = method.fit_extractor(toy_data.classifier, FitData(toy_data.fitted, show_progress=False))
        assert isinstance(extractor, ObservingExtractor)
        leaf = toy_data.tested.clean[:3].clone().requires_grad_()
        _, (values,) = extract_batch(toy_data.classifier, [extractor], leaf, ["a", "b", "c"])
        (slope,) = torch.autograd.grad(values.sum(), leaf)
        assert slope.isfinite().all()
        assert (slope.flatten(1).abs().amax(1) > 0).all()


def test_the_authors_preset_scales_to_their_range() -> None:
    method = make_method("lid", preset="authors")
    assert (method.head_options.kind, method.scaling) == ("logistic", "min-max")


@pytest.mark.parametrize(
    "options", [{"k": 100}, {"k": 1}, {"k": "best"}, {"batch": 20}, {"references": 0}, {"layers": ()}]
)
def test_options_outside_their_range_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        LID(**options)  # type: ignore[arg-type]
