import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import benfourier as bf
from benfourier.data.images import content_ids
from benfourier.data.seeds import image_generator
from benfourier.detectors import c1c2
from benfourier.detectors.c1c2 import C1, C1C2, C2, GRIDS, GreatestRank, benign_ranks, best_value
from benfourier.detectors.catalogue import make_method
from benfourier.detectors.extractor import RunningExtractor
from benfourier.detectors.features import extract
from benfourier.detectors.fit import fit
from benfourier.detectors.method import FitData
from benfourier.errors import ClassifierError, OptionError
from tests.attacks.trained import in_float64, unbeatable
from tests.detectors.toys import toys

QUICK: dict[str, Any] = {"sigma": 0.03, "step_t": 0.005, "step_u": 0.1, "cap_t": 30, "cap_u": 30}
WORDS = ("c1", "c2t", "c2u")
NOISE, TOWARDS, AWAY = C1(0.05, 3), C2(True, 0.02, 0.2, 15, 3), C2(False, 0.3, 0.2, 25, 3)
CRITERIA = {"c1": NOISE, "c2t": TOWARDS, "c2u": AWAY}


def values(classifier: bf.Classifier, images: Tensor, words: tuple[str, ...] = WORDS) -> Tensor:
    """Some of the criteria side by side."""
    ids = [""] * len(images)
    return torch.cat(extract(classifier, [CRITERIA[word] for word in words], images, ids, show_progress=False), 1)


def naive_steps(module: nn.Module, image: Tensor, goal: int, sign: int, step: float, radius: float, cap: int) -> int:
    """The definition, for one image."""
    label, moved = int(module(image).argmax()), image
    for count in range(1, cap + 1):
        leaf = moved.clone().requires_grad_()
        (slope,) = torch.autograd.grad(sign * F.cross_entropy(module(leaf), torch.tensor([goal])), leaf)
        moved = (moved - step * slope).clamp(0, 1)
        moved = image + (moved - image).clamp(-radius, radius)
        if int(module(moved).argmax()) != label:
            return count
    return cap


def naive(module: nn.Module, image: Tensor) -> list[float]:
    """C1 and the logarithms of both counts, one after the other."""
    (name,) = content_ids(image)
    label = int(module(image).argmax())
    noise = torch.randn(image.shape[1:], generator=image_generator(3, f"c1 {name}")).to(image)
    clean, noisy = (torch.softmax(module(x), 1) for x in (image, image + NOISE.sigma * noise))
    other = int(torch.randint(1, 10, (), generator=image_generator(3, f"c2t {name}")))
    counts = [
        naive_steps(module, image, (label + other) % 10, 1, TOWARDS.step, TOWARDS.radius, TOWARDS.cap),
        naive_steps(module, image, label, -1, AWAY.step, AWAY.radius, AWAY.cap),
    ]
    return [float((clean - noisy).detach().abs().sum()), *map(math.log, counts)]


def test_many_images_at_once_count_the_same_steps_as_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c1c2, "batch_size", lambda *_, **__: 5)  # so that images wait for those before them
    data = in_float64()
    features = values(data.classifier, data.images)
    expected = [naive(data.classifier.module, image) for image in torch.split(data.images, 1)]
    assert len(set(features[:, 1].tolist())) > 3
    assert len(set(features[:, 2].tolist())) > 3
    assert torch.allclose(features, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


def test_steps_mean_the_same_whatever_the_bounds() -> None:
    data = in_float64()
    wide = bf.Classifier(data.classifier.module, bounds=(-1.0, 3.0), mean=[-1.0], std=[4.0], size=8, channels=1)
    features = [
        values(classifier, images, ("c2u",))
        for classifier, images in ((data.classifier, data.images), (wide, 4 * data.images - 1))
    ]
    assert torch.equal(*features)


def test_an_image_that_no_gradient_moves_is_given_up_at_once() -> None:
    classifier, calls = unbeatable(), 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    handle = classifier.module.register_forward_hook(count)
    images, labels = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.zeros(3).long()
    classifier.layer_list((1, 8, 8))
    calls = 0
    steps = C2(False, 1.0, 0.5, 1000, 0).steps_to_flip(classifier, images, labels, labels)
    handle.remove()
    assert steps.tolist() == [1000, 1000, 1000]
    assert calls == 1


def test_a_module_without_gradients_is_refused_by_the_searches_only() -> None:
    class NoGradient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = toys().classifier.module

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.inner(images).detach()
            return logits

    classifier = bf.Classifier(NoGradient(), size=8, channels=1)
    images = toys().tested.clean[:2]
    assert values(classifier, images, ("c1",)).shape == (2, 1)
    with pytest.raises(ClassifierError, match="take c1c2:c1"):
        values(classifier, images, ("c2u",))


def test_a_rank_is_the_share_of_benign_values_below() -> None:
    benign = torch.tensor([[1.0], [2.0], [2.0], [4.0]], dtype=torch.float64)
    criteria = torch.tensor([[0.0], [0.5], [1.0], [1.5], [2.0], [4.0], [7.0], [10.0]], dtype=torch.float64)
    ranks = benign_ranks(criteria, benign, [10.0]).flatten().tolist()
    assert ranks == pytest.approx([0, 1 / 16, 1 / 8, 5 / 16, 1 / 2, 7 / 8, 15 / 16, 1])


def test_reaching_the_cap_outranks_every_benign_image_that_does_not() -> None:
    benign = torch.tensor([3.0, 10.0, 39.0], dtype=torch.float64).log().unsqueeze(1)
    reached = torch.tensor([[math.log(40)]], dtype=torch.float64)
    ranks = benign_ranks(torch.cat([benign, reached]), benign, [math.log(40)]).flatten()
    assert float(ranks[3]) == pytest.approx(1)
    assert bool((ranks[:3] < 0.9).all())


def test_under_the_authors_rules_the_score_is_the_greatest_rank() -> None:
    toy_data = toys()
    detector = fit(
        "c1c2", toy_data.classifier, toy_data.fitted.for_attack("bim"), rules="authors", show_progress=False, **QUICK
    )
    extractor = detector.extractor
    assert isinstance(extractor, GreatestRank)
    assert extractor.benign.shape == (2 * detector.summary["rows fitted"]["clean"], 3)
    images = toy_data.tested.clean[:5]
    apart = torch.cat(extract(toy_data.classifier, extractor.criteria, images, [""] * 5, show_progress=False), 1)
    greatest = [one.greatest for one in extractor.criteria]
    expected = benign_ranks(apart, extractor.benign, greatest).amax(1).numpy()
    assert np.array_equal(detector.score(images), expected)
    assert expected.min() >= 0
    assert expected.max() <= 1


@pytest.mark.parametrize("word", WORDS)
def test_an_id_that_ends_with_a_criterion_scores_that_one_alone(word: str) -> None:
    toy_data = toys()
    assert make_method(f"c1c2:{word}", cap_t=5) == C1C2(criteria=word, cap_t=5)
    detector = fit(
        f"c1c2:{word}", toy_data.classifier, toy_data.fitted.for_attack("bim"), C=1.0, gamma="scale", **QUICK
    )
    assert detector.summary["features"] == 1


@pytest.mark.parametrize(
    ("criteria", "needs"),
    [
        ("c1", {"random"}),
        ("c2t", {"random", "gradients", "search"}),
        ("c2u", {"gradients", "search"}),
        ("all", {"random", "gradients", "search"}),
    ],
)
def test_each_criterion_declares_what_it_needs(criteria: str, needs: set[str]) -> None:
    assert C1C2(criteria=criteria).needs == needs


@pytest.mark.parametrize("name", ["c1c2:c3", "mbf:c1", "c1c2:"])
def test_an_unknown_criterion_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"detector is '{name}'; allowed: .*c1c2:c1"):
        make_method(name)


@pytest.mark.parametrize(
    "options", [{"criteria": "c3"}, {"sigma": 0.0}, {"step_t": -1}, {"radius": math.inf}, {"cap_u": 0}, {"cap_t": 1.5}]
)
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        make_method("c1c2", **options)


def test_noise_is_chosen_by_the_examples() -> None:
    toy_data = toys()
    detector = fit("c1c2:c1", toy_data.classifier, toy_data.fitted.for_attack("bim"), C=1.0, gamma="scale")
    assert detector.summary["learned"]["sigma"] in GRIDS["sigma"][1]
    fixed = fit("c1c2:c1", toy_data.classifier, toy_data.fitted.for_attack("bim"), C=1.0, gamma="scale", sigma=0.02)
    assert fixed.summary["learned"]["sigma"] == 0.02


@dataclass(frozen=True, eq=False)
class TwoLevels(RunningExtractor):
    """One value for benign and another for adversarial images."""

    benign: float
    adversarial: float
    spread: float

    def extract(self, classifier: bf.Classifier, images: Tensor, logits: Tensor, ids: Sequence[str]) -> Tensor:
        attacked = toys().fitted.adversarial["bim"]
        bad = torch.tensor([bool((attacked == image).flatten(1).all(1).any()) for image in images])
        noise = torch.linspace(0, self.spread, len(images), dtype=torch.float64)
        return (torch.where(bad, self.adversarial, self.benign) + noise).unsqueeze(1)


def chosen(head: str, trials: dict[float, TwoLevels], limit: float = 100.0) -> float:
    toy_data = toys()
    data = FitData(toy_data.fitted.for_attack("bim"), show_progress=False)
    return best_value(make_method("c1c2", head=head), toy_data.classifier, data, trials, "trial", limit)


def test_the_value_that_separates_the_examples_best_is_chosen() -> None:
    trials = {3.0: TwoLevels(0, 0, 1), 2.0: TwoLevels(0, 0.7, 1), 1.0: TwoLevels(0, 0.2, 1)}
    assert chosen("plain", trials) == 2.0


def test_a_classifier_that_learns_the_direction_may_choose_the_opposite_one() -> None:
    trials = {2.0: TwoLevels(0, 0.2, 1), 1.0: TwoLevels(0.7, 0, 1)}
    assert chosen("svm", trials) == 1.0
    assert chosen("plain", trials) == 2.0


def test_no_smaller_step_is_tried_once_most_benign_images_reach_the_cap() -> None:
    trials = {3.0: TwoLevels(0, 0.2, 1), 2.0: TwoLevels(100, 100, 0), 1.0: TwoLevels(0, 5, 1)}
    assert chosen("plain", trials) == 3.0


def test_images_can_be_scored_in_inference_mode() -> None:
    images = toys().tested.clean[:3]
    expected = values(toys().classifier, images)
    with torch.inference_mode():
        assert torch.equal(values(toys().classifier, images.clone()), expected)
