import doctest
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
import benfourier.models.classifier as models
from benfourier.detectors.detector import Sigmoid
from benfourier.detectors.extractor import RunningExtractor
from benfourier.detectors.heads import Plain
from benfourier.detectors.max_softmax import LogUncertainty, MaxSoftmax
from benfourier.errors import ActivationError, ImageError, InputError, OptionError
from tests.detectors.guarded import detector, guard
from tests.detectors.toys import toys


@dataclass(frozen=True, eq=False)
class Brightness(RunningExtractor):
    """The mean pixel."""

    def extract(self, classifier: bf.Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        return images.double().mean((1, 2, 3)).unsqueeze(1)


def doubting(classifier: bf.Classifier) -> bf.Detector:
    """max-softmax, which learns nothing."""
    return bf.Detector(MaxSoftmax(), classifier, LogUncertainty(), Plain(), Sigmoid(1.0, 0.0), {})


@cache
def any_size() -> bf.Guard:
    """A guard over a network that takes images of any size."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
        clean = torch.rand(60, 1, 9, 9)
    classifier = bf.Classifier(head, channels=1, classes=("ant", "bee", "cat"))
    return bf.Guard.calibrated(doubting(classifier), clean, 0.5)


@contextmanager
def passes(module: nn.Module) -> Iterator[list[int]]:
    """The batch sizes of the forward passes inside the block."""
    seen: list[int] = []
    handle = module.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    try:
        yield seen
    finally:
        handle.remove()


def noise(*sizes: tuple[int, int]) -> list[Tensor]:
    """One image of each size."""
    return [torch.rand(1, *size, generator=torch.Generator().manual_seed(n)) for n, size in enumerate(sizes)]


def both() -> Tensor:
    """Clean and attacked digits."""
    return torch.cat([toys().tested.clean[:8], toys().tested.adversarial["bim"][:8]])


def test_scores_are_the_detectors_and_labels_the_networks() -> None:
    verdicts = guard().check(both())
    assert np.array_equal(verdicts.score, detector().score(both()))
    assert np.array_equal(verdicts.label, toys().classifier.logits(both()).argmax(1).numpy())
    unfamiliar = verdicts.unfamiliarity > guard().most_unfamiliar
    assert np.array_equal(verdicts.accepted, (verdicts.score <= guard().threshold.value) & ~unfamiliar)
    assert np.array_equal(verdicts.accepted, verdicts.p_value > guard().threshold.rate)
    assert np.array_equal(verdicts.reason == "unfamiliar", unfamiliar)
    assert np.array_equal(verdicts.reason == "", verdicts.accepted)
    assert verdicts.threshold == guard().threshold.value
    assert [str(part.dtype) for part in (verdicts.label, verdicts.accepted, verdicts.score)] == [
        "int64",
        "bool",
        "float64",
    ]


def test_most_attacked_digits_are_rejected_and_few_clean_ones() -> None:
    attacked = toys().tested.adversarial["bim"][toys().tested.success["bim"]]
    assert guard().check(attacked).accepted.mean() < 0.3
    assert guard().check(toys().tested.clean).accepted.mean() >= 0.9


def test_a_detector_that_observes_layers_shares_the_networks_forward_pass() -> None:
    images = both()
    guard().check(images)
    first = toys().classifier.module[0]  # type: ignore[index]
    assert isinstance(first, nn.Module)
    with passes(first) as seen:
        guard().check(images)
        guard().as_module()(images)
    assert seen == [16, 16]


def test_a_detector_that_works_by_itself_is_guarded_too() -> None:
    classifier = toys().classifier
    working = replace(doubting(classifier), extractor=Brightness())
    verdicts = bf.Guard.calibrated(working, toys().tested.clean, 0.1).check(both())
    assert np.allclose(verdicts.score, both().mean((1, 2, 3)))
    assert np.array_equal(verdicts.label, classifier.logits(both()).argmax(1).numpy())


def test_verdicts_are_neither_true_nor_false() -> None:
    verdicts = guard().check(toys().tested.clean[:2])
    with pytest.raises(TypeError, match=r"ask for \.accepted\.all\(\)"):
        bool(verdicts)
    with pytest.raises(TypeError, match=r"ask for \.accepted"):
        bool(verdicts[0])


def test_one_image_gets_one_verdict() -> None:
    image = toys().tested.clean[3]
    verdicts = guard().check(image)
    assert len(verdicts) == 1
    # another batch size changes the last bits of the network; scores are of the order of 1
    assert verdicts.score[0] == pytest.approx(guard().check(toys().tested.clean[:8]).score[3], abs=1e-3)


def test_images_of_mixed_sizes_are_answered_in_the_order_given() -> None:
    images = noise((7, 9), (12, 12), (7, 9), (5, 5), (12, 12), (7, 9))
    together = any_size().check(images, batch=2)
    alone = [any_size().check(image)[0] for image in images]
    assert [verdict.label for verdict in together] == [verdict.label for verdict in alone]
    assert together.score == pytest.approx([verdict.score for verdict in alone], abs=1e-5)  # float32 logits near 1
    assert len({round(score, 4) for score in together.score}) == len(images)


def test_layer_lists_of_ever_new_sizes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "CACHE", 3)
    classifier = replace(any_size().classifier)
    fresh = replace(any_size(), detector=replace(any_size().detector, classifier=classifier))
    first = fresh.check(noise((8, 8))).score
    for side in range(8, 20):
        fresh.check(noise((side, side)))
    assert len(classifier._layer_lists) <= 3
    assert np.allclose(fresh.check(noise((8, 8))).score, first)


def test_images_of_several_dtypes_are_answered_in_the_order_given() -> None:
    (image,) = noise((8, 8))
    verdicts = any_size().check([image, image.double(), image])
    assert verdicts.score == pytest.approx([verdicts.score[0]] * 3, abs=1e-6)


def test_a_classifier_of_one_size_refuses_others_by_place() -> None:
    with pytest.raises(ImageError, match=r"image 1: images have size \(9, 9\); this classifier takes \(8, 8\)"):
        guard().check([torch.zeros(1, 8, 8), torch.zeros(1, 9, 9)])


@pytest.mark.parametrize(
    "images", [[], torch.zeros(0, 1, 8, 8), "a.png", 3, [torch.zeros(8, 8)], [np.zeros((1, 8, 8))]]
)
def test_what_is_not_an_image_is_refused(images: object) -> None:
    with pytest.raises(ImageError):
        guard().check(images)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [float("nan"), 1.5, -0.1])
def test_images_out_of_bounds_are_refused_by_place(bad: float) -> None:
    images = list(toys().tested.clean[:3].clone())
    images[2][0, 1, 1] = bad
    with pytest.raises(ImageError, match="image 2: "):
        guard().check(images)


def test_a_stream_is_taken_no_further_ahead_than_a_batch() -> None:
    numbers = []

    def images() -> Iterator[Tensor]:
        for number, image in enumerate(both()):
            numbers.append(number)
            yield image

    stream = guard().stream(images(), batch=4)
    assert numbers == []
    first = next(stream)
    assert numbers == [0, 1, 2, 3]
    rest = list(stream)
    assert len(rest) == 15
    whole = guard().check(both())
    assert [first.label, *(verdict.label for verdict in rest)] == whole.label.tolist()
    assert [first.score, *(verdict.score for verdict in rest)] == pytest.approx(whole.score.tolist(), abs=1e-3)


def test_a_stream_may_mix_sizes_and_may_be_empty() -> None:
    images = noise((6, 6), (8, 8), (6, 6), (7, 7), (8, 8))
    scores = [verdict.score for verdict in any_size().stream(iter(images), batch=3)]
    assert scores == pytest.approx(any_size().check(images).score.tolist(), abs=1e-5)
    assert list(any_size().stream([])) == []


def test_a_bad_image_in_a_stream_is_named_by_its_place_in_the_stream() -> None:
    images = [torch.zeros(1, 8, 8)] * 5 + [torch.full((1, 8, 8), torch.nan)]
    with pytest.raises(ImageError, match="image 5: "):
        list(guard().stream(images, batch=2))


def test_a_stream_refuses_a_batch_size_of_zero_at_once() -> None:
    with pytest.raises(OptionError, match="batch is 0"):
        guard().stream([], batch=0)


def test_as_a_module_it_marks_rejected_rows_with_one_more_class() -> None:
    verdicts, logits = guard().check(both()), guard().as_module()(both())
    network = toys().classifier.logits(both())
    rejected = torch.from_numpy(~verdicts.accepted)
    assert logits.shape == (16, 11)
    assert rejected.any()
    assert not rejected.all()
    assert torch.equal(logits.argmax(1) == 10, rejected)
    assert torch.allclose(logits[~rejected, :10], network[~rejected], rtol=1e-3, atol=1e-3)
    assert (logits[~rejected, 10] == -torch.inf).all()
    assert torch.equal(logits.softmax(1)[rejected, 10], torch.ones(int(rejected.sum())))
    assert torch.allclose(logits.softmax(1).sum(1), torch.ones(16))


def test_as_a_module_it_answers_images_of_several_sizes_in_the_order_given() -> None:
    module, images = any_size().as_module(), noise((9, 9), (12, 12), (9, 9), (15, 9), (12, 12))
    together = module(images)
    for image, row in zip(images, together, strict=True):
        assert torch.allclose(module([image])[0], row, atol=1e-5)


def test_as_a_module_it_is_in_eval_mode_whatever_mode_it_is_put_in() -> None:
    module = guard().as_module()
    try:
        trained, rested = module.train()(both()), module.eval()(both())
    finally:
        module.eval()
    assert torch.equal(trained, rested)
    assert not trained.requires_grad


def test_the_threshold_comes_from_the_held_out_images() -> None:
    calibrated = guard()
    scores = detector().score(toys().tested.clean)
    assert np.array_equal(calibrated.calibration.scores, scores)
    values = calibrated.calibration.rules.thresholds(0.1)
    assert (calibrated.threshold.value, calibrated.most_unfamiliar) == values
    verdicts = calibrated.check(toys().tested.clean)
    assert (calibrated.threshold.images, calibrated.threshold.rate) == (40, 0.1)
    assert calibrated.threshold.alarms == (~verdicts.accepted).sum() <= 4


def test_the_mean_and_deviation_of_every_feature_are_stored() -> None:
    features = bf.features(toys().classifier, toys().tested.clean, dtype="float64", show_progress=False)
    assert guard().calibration.mean == pytest.approx(features.mean(0))
    assert guard().calibration.deviation == pytest.approx(features.std(0))


def test_another_rate_needs_no_images() -> None:
    stricter = guard().at_rate(0.5)
    assert stricter.threshold == guard().calibration.rules.threshold(0.5)
    assert stricter.threshold.alarms > guard().threshold.alarms
    assert guard().threshold.rate == 0.1
    with pytest.raises(OptionError, match="needs at least 199"):
        guard().at_rate(0.01)


def test_too_few_images_are_refused_before_any_is_looked_at() -> None:
    with passes(toys().classifier.module) as seen, pytest.raises(OptionError, match="that rate needs at least 39"):
        bf.Guard.calibrated(detector(), toys().tested.clean[:18], 0.05)
    assert seen == []


@pytest.mark.parametrize("kind", ["clean", "noisy"])
def test_images_that_the_detector_was_fitted_with_cannot_set_its_threshold(kind: str) -> None:
    fitted = {part.kind: part.images.images for part in toys().fitted.for_attack("bim").parts()}[kind]
    with pytest.raises(InputError, match="1 of 41 clean images, the first in place 40, were used to fit the detector"):
        bf.Guard.calibrated(detector(), torch.cat([toys().tested.clean, fitted[:1]]))


def test_a_guard_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        guard().false_alarm_rate = 0.2  # type: ignore[misc]


def test_logits_that_are_no_numbers_are_refused() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 3)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.head(images.flatten(1))
            return logits.masked_fill((images.mean((1, 2, 3)) > 0.9).unsqueeze(1), torch.nan)

    classifier = bf.Classifier(Broken(), size=8, channels=1)
    calibrated = bf.Guard.calibrated(replace(doubting(classifier), extractor=Brightness()), torch.rand(60, 1, 8, 8))
    with pytest.raises(ActivationError, match="gives NaN or infinity"):
        calibrated.check(torch.stack([torch.zeros(1, 8, 8), torch.ones(1, 8, 8)]))


class Shifted(Plain):
    """A head that scores dark images as -∞ and bright ones as NaN."""

    def score(self, features: Tensor) -> Tensor:
        scores = super().score(features)
        return scores.masked_fill(scores < 0.1, -torch.inf).masked_fill(scores > 0.9, torch.nan)


@pytest.mark.parametrize("pixel", [0.0, 1.0])
def test_a_score_that_is_not_finite_is_never_a_verdict(pixel: float) -> None:
    classifier = toys().classifier
    unsure = replace(doubting(classifier), extractor=Brightness())
    usual = bf.Guard.calibrated(unsure, toys().tested.clean, 0.1)
    broken = replace(usual, detector=replace(unsure, head=Shifted()))
    images = torch.stack([torch.full((1, 8, 8), 0.5), torch.full((1, 8, 8), pixel)])
    with pytest.raises(ActivationError, match="the score of image 1 is NaN or infinity"):
        broken.check(images)
    with pytest.raises(ActivationError, match="the score of image 1"):
        broken.as_module()(images)
    with pytest.raises(ActivationError, match="the score of image 0"):
        bf.Guard.calibrated(broken.detector, torch.full((60, 1, 8, 8), pixel))


def test_a_slice_of_verdicts_is_verdicts_of_these_images() -> None:
    verdicts = guard().check(both())
    part = verdicts[2:5]
    assert isinstance(part, bf.Verdicts)
    assert part.score.tolist() == verdicts.score[2:5].tolist()
    assert [verdict.label for verdict in part] == verdicts.label[2:5].tolist()
    assert part.features.tolist() == verdicts.features[2:5].tolist()
    assert len(part.logits) == 3


def test_features_of_verdicts_are_those_of_the_detector() -> None:
    features = bf.features(toys().classifier, both(), dtype="float64", show_progress=False)
    assert guard().check(both()).features == pytest.approx(features)


def test_verdicts_print_the_class_or_that_it_is_rejected() -> None:
    verdicts = bf.Verdicts(
        label=np.array([2, 0]),
        accepted=np.array([True, False]),
        reason=np.array(["", "adversarial"]),
        score=np.array([0.5, 2.0]),
        unfamiliarity=np.zeros(2),
        p_value=np.array([0.5, 0.01]),
        threshold=1.25,
        logits=np.eye(3)[[2, 0]],
        features=np.zeros((2, 1)),
        classes=("ant", "bee", "cat"),
    )
    assert str(verdicts).splitlines() == [
        "cat, score 0.5 ≤ 1.25, p 0.5",
        "rejected, adversarial, score 2 > 1.25, p 0.01",
    ]
    assert repr(verdicts) == "Verdicts(2 images, 1 rejected, threshold 1.25)"
    assert verdicts.names == ["cat", "ant"]
    assert str(replace(verdicts, classes=None)[0]) == "2, score 0.5 ≤ 1.25, p 0.5"
    assert [verdict.accepted for verdict in verdicts] == [True, False]


def test_a_guard_prints_its_threshold() -> None:
    assert "for a false-alarm rate of 0.1: 2 of 40 held-out clean images" in repr(guard())


def test_the_code_on_the_guard_page_prints_what_the_page_shows() -> None:
    page = Path(__file__).parents[2] / "docs" / "guard.md"
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with torch.random.fork_rng(devices=[]):
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)):
            test = doctest.DocTestParser().get_doctest(block, names, f"block {number}", str(page), 0)
            assert runner.run(test, clear_globs=False).failed == 0
            names.update(test.globs)
    assert runner.tries > 20


def test_the_guard_page_names_every_field_of_verdicts() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guard.md").read_text(encoding="utf-8")
    assert [field.name for field in fields(bf.Verdicts) if f"| `{field.name}` |" not in page] == []
