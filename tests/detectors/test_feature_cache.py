"""The feature cache: features are computed once, and are the same in any order of requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.detectors.c1c2 import C1C2
from benfourier.detectors.extractor import Concatenated, Extractor, RunningExtractor
from benfourier.detectors.feature_cache import CHUNK, WIDE, FeatureCache
from benfourier.detectors.features import extract
from benfourier.detectors.fit import fit
from benfourier.detectors.kd_bu import KDBU
from benfourier.detectors.lid import LID
from benfourier.detectors.mahalanobis import Mahalanobis
from benfourier.detectors.max_softmax import MaxSoftmax
from benfourier.detectors.mbf import MBF
from benfourier.detectors.method import FitData, Method
from benfourier.models.classifier import Classifier
from benfourier.models.identity import classifier_digest
from benfourier.store.cache import open_cache
from tests.detectors.toys import toys


@dataclass(frozen=True, eq=False)
class Brightness(RunningExtractor):
    """Mean of the pixels, and how many images it was asked about."""

    factor: float = 1.0
    times: int = 1
    asked: list[int] = field(default_factory=list, init=False)

    def extract(self, classifier: Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        self.asked.append(len(images))
        return self.factor * images.flatten(1).mean(1, keepdim=True).repeat(1, self.times)

    def cacheable_parts(self) -> tuple[Extractor, ...]:
        return (self,)


def cache_of(*pool: Tensor, folder: Path | None = None, network: str = "network") -> FeatureCache:
    return FeatureCache(toys().classifier, network, pool, None if folder is None else open_cache(folder))


def ids_of(images: Tensor) -> list[str]:
    return [f"query-{row}" for row in range(len(images))]


def dropping() -> Classifier:
    """An untrained network with dropout."""
    torch.manual_seed(0)
    layers = [
        nn.Flatten(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(32, 16),
        nn.ReLU(),
        nn.Linear(16, 10),
    ]
    return Classifier(nn.Sequential(*layers), size=8, channels=1)


def test_features_of_an_image_are_computed_once() -> None:
    extractor, images = Brightness(), toys().fitted.clean
    cache = cache_of(images, images.flip(0))
    features = cache.features(extractor, images, ids_of(images))
    assert torch.equal(features[:, 0], images.flatten(1).mean(1).double())
    assert torch.equal(cache.features(extractor, images[[5, 3]], ["a", "b"]), features[[5, 3]])
    assert sum(extractor.asked) == len(images)
    assert cache.features(Brightness(2.0), images[:3], ["a", "b", "c"]).tolist() == (2 * features[:3]).tolist()


def test_features_are_bit_equal_in_any_order_of_requests() -> None:
    toy_data, images = toys(), toys().fitted.clean
    extractor = MBF(orders=4).fit_extractor(toy_data.classifier, FitData(toy_data.fitted))
    whole = cache_of(images).features(extractor, images, toy_data.fitted.ids)
    few = cache_of(images).features(extractor, images[[7, 99]], ["a", "b"])
    assert torch.equal(few, whole[[7, 99]])
    (plain,) = extract(toy_data.classifier, [extractor], images, toy_data.fitted.ids, show_progress=False)
    assert torch.allclose(plain, whole, atol=1e-5)


def test_a_later_cache_reads_features_from_the_folder(tmp_path: Path) -> None:
    images, first, second = toys().fitted.clean[:10], Brightness(), Brightness()
    features = cache_of(images, folder=tmp_path).features(first, images, ids_of(images))
    again = cache_of(images, folder=tmp_path).features(second, images, ids_of(images))
    assert torch.equal(features, again)
    assert (first.asked, second.asked) == ([10], [])
    cache_of(images, folder=tmp_path, network="another").features(second, images, ids_of(images))
    assert second.asked == [10]


def test_an_extractor_of_another_version_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, extractor = toys().fitted.clean[:10], Brightness()
    cache_of(images, folder=tmp_path).features(extractor, images, ids_of(images))
    monkeypatch.setattr(Brightness, "version", 2)
    cache_of(images, folder=tmp_path).features(extractor, images, ids_of(images))
    assert extractor.asked == [10, 10]


def test_images_that_are_not_in_the_pool_are_refused() -> None:
    toy_data = toys()
    with pytest.raises(KeyError):
        cache_of(toy_data.fitted.clean).features(Brightness(), toy_data.tested.clean, toy_data.tested.ids)


@pytest.mark.parametrize(
    "method", [kind(C=1.0, gamma="scale") for kind in (MBF, MaxSoftmax, LID, KDBU, Mahalanobis)], ids=lambda m: m.id
)
def test_a_fit_with_a_cache_gives_the_same_detector(method: Method) -> None:
    toy_data = toys()
    examples = toy_data.fitted.for_attack("bim")
    pool = [examples.clean, examples.noisy["noisy"], examples.adversarial["bim"], toy_data.tested.clean]
    cache = FeatureCache(toy_data.classifier, classifier_digest(toy_data.classifier, (1, 8, 8)), pool)
    one = fit(method, toy_data.classifier, examples, show_progress=False)
    other = fit(method, toy_data.classifier, examples, show_progress=False, cache=cache)
    expected = one.score(toy_data.tested.clean, show_progress=False)
    assert other.score(toy_data.tested.clean, show_progress=False) == pytest.approx(expected, abs=1e-4)
    assert other.score(toy_data.tested.clean, cache=cache) == pytest.approx(expected, abs=1e-4)


def test_criteria_are_cached_one_by_one_so_that_one_can_change_alone(tmp_path: Path) -> None:
    toy_data, images = toys(), toys().fitted.clean[:20]
    options = C1C2(sigma=0.03, step_t=0.05, step_u=1.0, cap_t=5, cap_u=5)
    extractor = options.fit_extractor(toy_data.classifier, FitData(toy_data.fitted))
    cache = cache_of(images, folder=tmp_path)
    features = cache.features(extractor, images, toy_data.fitted.ids[:20])
    (whole,) = extract(toy_data.classifier, [extractor], images, toy_data.fitted.ids[:20], show_progress=False)
    assert torch.allclose(features, whole, atol=1e-6)
    files = set(tmp_path.rglob("*.safetensors"))
    other = C1C2(sigma=0.1, step_t=0.05, step_u=1.0, cap_t=5, cap_u=5)
    changed = cache.features(
        other.fit_extractor(toy_data.classifier, FitData(toy_data.fitted)), images, toy_data.fitted.ids[:20]
    )
    assert len(files) == 3
    assert len(set(tmp_path.rglob("*.safetensors")) - files) == 1
    assert torch.equal(changed[:, 1:], features[:, 1:])
    assert not torch.equal(changed[:, 0], features[:, 0])


def parts_of(extractor: Extractor) -> int:
    return sum(len(leaf.cacheable_parts()) for leaf in extractor.leaves())


@pytest.mark.parametrize(
    "method",
    [KDBU(), KDBU(bu=False), Mahalanobis(), LID(k=10, batch=30, references=2), LID(k=10, batch=40, official=True)],
)
def test_parts_give_the_features_of_the_whole_and_are_shared_by_fits(method: Method) -> None:
    toy_data, network = toys(), dropping()
    references = bf.LabelledImages(toy_data.fitted.clean, toy_data.fitted.labels, toy_data.fitted.ids)
    pool = [toy_data.fitted.clean, toy_data.fitted.noisy["noisy"]]
    cache = FeatureCache(network, classifier_digest(network, (1, 8, 8)), pool, reference_pool=references)
    for examples in (toy_data.fitted.take(np.arange(60)), toy_data.fitted.take(np.arange(40, 120))):
        extractor = method.fit_extractor(network, FitData(examples, cache=cache))
        (whole,) = extract(
            network, [extractor], toy_data.fitted.noisy["noisy"], toy_data.fitted.ids, show_progress=False
        )
        features = cache.features(extractor, toy_data.fitted.noisy["noisy"], toy_data.fitted.ids)
        assert torch.allclose(features, whole, rtol=1e-4, atol=1e-6)
        with_other_ids = cache.features(
            extractor, toy_data.fitted.noisy["noisy"], [f"apart-{row}" for row in range(120)]
        )
        same = isinstance(method, LID) and method.official
        assert torch.allclose(with_other_ids, whole, rtol=1e-4) == same  # else none is compared with its own source
        assert len(cache._known) == -(-len(toy_data.fitted) // CHUNK) * parts_of(extractor)


def test_side_by_side_extractors_are_cached_each_for_itself(tmp_path: Path) -> None:
    images = toys().fitted.clean[:10]
    cache = cache_of(images, folder=tmp_path)
    both = Concatenated((Brightness(), Brightness(2.0)))
    features = cache.features(both, images, ids_of(images))
    assert torch.equal(features[:, 1], 2 * features[:, 0])
    assert len(list(tmp_path.rglob("*.safetensors"))) == 2


def test_wide_features_stay_in_memory(tmp_path: Path) -> None:
    images = toys().fitted.clean[:10]
    cache = cache_of(images, folder=tmp_path)
    wide = Brightness(times=WIDE + 1)
    first = cache.features(wide, images, ids_of(images))
    assert torch.equal(cache.features(wide, images, ids_of(images)), first)
    assert not list(tmp_path.rglob("*.safetensors"))
    cache.features(Brightness(times=WIDE), images, ids_of(images))
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


def test_wide_features_are_stored_where_they_take_no_more_than_the_image(tmp_path: Path) -> None:
    classifier, images = Classifier(nn.Flatten(), size=40, channels=1), torch.rand(3, 1, 40, 40)
    cache = FeatureCache(classifier, "network", [images], open_cache(tmp_path))
    cache.features(Brightness(times=1601), images, ids_of(images))
    assert not list(tmp_path.rglob("*.safetensors"))
    cache.features(Brightness(times=1600), images, ids_of(images))
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
