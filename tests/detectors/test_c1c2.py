import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import benfourier as bf
from benfourier.data.draws import generator, names_by_content
from benfourier.detectors import flips as flips_file
from benfourier.detectors import tuning
from benfourier.detectors.c1c2 import C1C2, GRIDS, Criteria
from benfourier.detectors.catalogue import fit, method
from benfourier.detectors.flips import Push, flips
from benfourier.detectors.method import Lessons
from benfourier.detectors.ranks import ranks
from benfourier.errors import OptionError, SubjectError
from tests.attacks.trained import in_float64, unbeatable
from tests.detectors.toys import toys

QUICK: dict[str, Any] = {"sigma": 0.03, "step_t": 0.005, "step_u": 0.1, "cap_t": 30, "cap_u": 30}
WORDS = ("c1", "c2t", "c2u")
UNRANKED = torch.zeros(0, 3, dtype=torch.float64)


def criteria(words: tuple[str, ...] = WORDS) -> Criteria:
    return Criteria(words, 0.05, 0.02, 0.3, 0.2, (15, 25), 3, UNRANKED[:, : len(words)])


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


def naive(module: nn.Module, image: Tensor, chosen: Criteria) -> list[float]:
    """C1 and the logarithms of both counts, one after the other."""
    (name,) = names_by_content(image)
    label = int(module(image).argmax())
    noise = torch.randn(image.shape[1:], generator=generator(chosen.seed, f"c1 {name}")).to(image)
    calm, shaken = (torch.softmax(module(x), 1) for x in (image, image + chosen.sigma * noise))
    other = int(torch.randint(1, 10, (), generator=generator(chosen.seed, f"c2t {name}")))
    counts = [
        naive_steps(module, image, (label + other) % 10, 1, chosen.step_t, chosen.radius, chosen.caps[0]),
        naive_steps(module, image, label, -1, chosen.step_u, chosen.radius, chosen.caps[1]),
    ]
    return [float((calm - shaken).detach().abs().sum()), *map(math.log, counts)]


def test_many_images_at_once_count_the_same_steps_as_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flips_file, "MOST", 5)  # so that images wait for those before them
    given = in_float64()
    found = criteria().work(given.subject, given.images, [""] * len(given.images))
    wanted = [naive(given.subject.module, image, criteria()) for image in torch.split(given.images, 1)]
    assert len(set(found[:, 1].tolist())) > 3
    assert len(set(found[:, 2].tolist())) > 3
    assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=1e-12)


def test_steps_mean_the_same_whatever_the_bounds() -> None:
    given = in_float64()
    wide = bf.Subject(given.subject.module, bounds=(-1.0, 3.0), mean=[-1.0], std=[4.0], size=8, channels=1)
    found = [
        criteria(("c2u",)).work(subject, images, [""] * len(images))
        for subject, images in ((given.subject, given.images), (wide, 4 * given.images - 1))
    ]
    assert torch.equal(*found)


def test_an_image_that_no_gradient_moves_is_given_up_at_once() -> None:
    subject, calls = unbeatable(), 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    handle = subject.module.register_forward_hook(count)
    images, labels = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.zeros(3).long()
    subject.plan((1, 8, 8))
    calls = 0
    found = flips(subject, images, labels, labels, Push(-1, 1.0, 0.5, 1000))
    handle.remove()
    assert found.tolist() == [1000, 1000, 1000]
    assert calls == 1


def test_a_module_without_gradients_is_refused_by_the_searches_only() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = toys().subject.module

        def forward(self, images: Tensor) -> Tensor:
            found: Tensor = self.inner(images).detach()
            return found

    subject = bf.Subject(Cut(), size=8, channels=1)
    images = toys().tested.clean[:2]
    assert criteria(("c1",)).work(subject, images, ["a", "b"]).shape == (2, 1)
    with pytest.raises(SubjectError, match="take c1c2:c1"):
        criteria(("c2u",)).work(subject, images, ["a", "b"])


def test_a_rank_is_the_share_of_benign_numbers_below() -> None:
    benign = torch.tensor([[1.0], [2.0], [2.0], [4.0]], dtype=torch.float64)
    numbers = torch.tensor([[0.0], [0.5], [1.0], [1.5], [2.0], [4.0], [7.0], [10.0]], dtype=torch.float64)
    limits = torch.tensor([0.0]), torch.tensor([10.0])
    found = ranks(numbers, benign, *limits).flatten().tolist()
    assert found == pytest.approx([0, 1 / 16, 1 / 8, 5 / 16, 1 / 2, 7 / 8, 15 / 16, 1])


def test_reaching_the_cap_outranks_every_benign_image_that_does_not() -> None:
    benign = torch.tensor([3.0, 10.0, 39.0], dtype=torch.float64).log().unsqueeze(1)
    reached = torch.tensor([[math.log(40)]], dtype=torch.float64)
    found = ranks(torch.cat([benign, reached]), benign, torch.zeros(1), torch.tensor([math.log(40)])).flatten()
    assert float(found[3]) == pytest.approx(1)
    assert bool((found[:3] < 0.9).all())


def test_under_the_authors_rules_the_score_is_the_greatest_rank() -> None:
    made = toys()
    detector = fit("c1c2", made.subject, made.fitted.for_attack("bim"), rules="authors", show_progress=False, **QUICK)
    measure = detector.measure
    assert isinstance(measure, Criteria)
    assert measure.benign.shape == (2 * detector.summary["rows fitted"]["clean"], 3)
    images = made.tested.clean[:5]
    apart = replace(measure, benign=UNRANKED).work(made.subject, images, [""] * 5)
    limits = torch.tensor([measure.greatest(word) for word in WORDS], dtype=torch.float64)
    wanted = ranks(apart, measure.benign, torch.zeros(3), limits).amax(1).numpy()
    assert np.array_equal(detector.score(images), wanted)
    assert wanted.min() >= 0
    assert wanted.max() <= 1


@pytest.mark.parametrize("word", WORDS)
def test_an_id_with_a_criterion_behind_it_scores_that_one_alone(word: str) -> None:
    made = toys()
    assert method(f"c1c2:{word}", cap_t=5) == C1C2(criteria=word, cap_t=5)
    detector = fit(f"c1c2:{word}", made.subject, made.fitted.for_attack("bim"), C=1.0, gamma="scale", **QUICK)
    assert detector.summary["numbers"] == 1


@pytest.mark.parametrize(
    ("criteria", "needs"),
    [
        ("c1", {"samples"}),
        ("c2t", {"samples", "gradients", "searches"}),
        ("c2u", {"gradients", "searches"}),
        ("all", {"samples", "gradients", "searches"}),
    ],
)
def test_each_criterion_says_what_it_needs(criteria: str, needs: set[str]) -> None:
    assert C1C2(criteria=criteria).needs == needs


@pytest.mark.parametrize("name", ["c1c2:c3", "mbf:c1", "c1c2:"])
def test_an_unknown_criterion_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"detector is '{name}'; allowed: .*c1c2:c1"):
        method(name)


@pytest.mark.parametrize(
    "options", [{"criteria": "c3"}, {"sigma": 0.0}, {"step_t": -1}, {"radius": math.inf}, {"cap_u": 0}, {"cap_t": 1.5}]
)
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        method("c1c2", **options)


def test_noise_is_chosen_by_the_examples() -> None:
    made = toys()
    detector = fit("c1c2:c1", made.subject, made.fitted.for_attack("bim"), C=1.0, gamma="scale")
    assert detector.summary["learned"]["sigma"] in GRIDS["sigma"][1]
    given = fit("c1c2:c1", made.subject, made.fitted.for_attack("bim"), C=1.0, gamma="scale", sigma=0.02)
    assert given.summary["learned"]["sigma"] == 0.02


@dataclass(frozen=True)
class Told:
    """Gives benign and adversarial images the numbers it was told."""

    benign: float
    adversarial: float
    spread: float

    def work(self, subject: bf.Subject, images: Tensor, ids: Sequence[str]) -> Tensor:
        attacked = toys().fitted.attacked["bim"]
        bad = torch.tensor([bool((attacked == image).flatten(1).all(1).any()) for image in images])
        noise = torch.linspace(0, self.spread, len(images), dtype=torch.float64)
        return (torch.where(bad, self.adversarial, self.benign) + noise).unsqueeze(1)


def chosen(classifier: str, trials: dict[float, Told], limit: float = 100.0) -> float:
    made = toys()
    lessons = Lessons(made.fitted.for_attack("bim"), show_progress=False)
    return tuning.best(method("c1c2", classifier=classifier), made.subject, lessons, trials, "trial", limit)


def test_the_value_that_tells_the_examples_apart_best_is_chosen() -> None:
    trials = {3.0: Told(0, 0, 1), 2.0: Told(0, 0.7, 1), 1.0: Told(0, 0.2, 1)}
    assert chosen("plain", trials) == 2.0


def test_a_classifier_that_learns_the_direction_may_choose_the_opposite_one() -> None:
    trials = {2.0: Told(0, 0.2, 1), 1.0: Told(0.7, 0, 1)}
    assert chosen("svm", trials) == 1.0
    assert chosen("plain", trials) == 2.0


def test_no_smaller_step_is_tried_once_most_benign_images_reach_the_cap() -> None:
    trials = {3.0: Told(0, 0.2, 1), 2.0: Told(100, 100, 0), 1.0: Told(0, 5, 1)}
    assert chosen("plain", trials) == 3.0


def test_images_can_be_scored_in_inference_mode() -> None:
    images = toys().tested.clean[:3]
    wanted = criteria().work(toys().subject, images, ["a", "b", "c"])
    with torch.inference_mode():
        assert torch.equal(criteria().work(toys().subject, images.clone(), ["a", "b", "c"]), wanted)
