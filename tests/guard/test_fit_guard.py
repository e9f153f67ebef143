"""`fit_guard`: which images a detector is fitted to, and which set its threshold."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import Tensor, nn

import benfourier as bf
from benfourier.data.images import content_ids
from benfourier.errors import InputError, OptionError
from tests.detectors.toys import toys

METHOD = bf.MBF(C=10.0, gamma="scale", seed=3)


def examples() -> bf.Examples:
    return toys().fitted.for_attack("bim")


@cache
def guard_with_held_out_part() -> bf.Guard:
    return bf.fit_guard(toys().classifier, METHOD, examples(), false_alarm_rate=0.1, show_progress=False)


def test_a_fifth_of_the_examples_sets_the_threshold_and_takes_no_part_in_the_fit() -> None:
    guard = guard_with_held_out_part()
    assert guard.threshold.images == pytest.approx(len(examples()) / 5, abs=1)
    assert guard.detector.summary["sources"] + guard.threshold.images == len(examples())
    unseen = [name for name in content_ids(examples().clean) if name not in guard.detector.seen]
    assert len(unseen) == guard.threshold.images


def held_out_to_measure(guard: bf.Guard) -> int:
    assert guard.card is not None
    return guard.card.attacks[0].tried


def test_the_card_is_measured_on_examples_that_are_held_out() -> None:
    guard = guard_with_held_out_part()
    assert guard.card is not None
    (rate,) = guard.card.attacks
    assert (rate.attack, rate.is_fitted, rate.tried) == ("bim", True, guard.threshold.images)
    assert rate.rejected / rate.succeeded == rate.share.value > 0.5
    alarms, noise, jpeg = guard.card.alarms
    assert (alarms.kind, alarms.images) == ("those that set the thresholds", guard.threshold.images)
    assert alarms.rejected == guard.threshold.alarms
    assert (noise.kind, noise.images) == ("noise of ±8/255", rate.tried)
    assert (jpeg.kind, jpeg.images) == ("JPEG of quality 75", rate.tried)
    assert len(guard.card.other_kinds) == 5


def test_the_same_seed_gives_the_same_guard() -> None:
    again = bf.fit_guard(toys().classifier, METHOD, examples(), false_alarm_rate=0.1, show_progress=False)
    assert again.threshold == guard_with_held_out_part().threshold


def test_clean_images_that_the_fit_sees_are_left_out() -> None:
    clean = torch.cat([examples().clean[:5], toys().tested.clean, examples().noisy["noisy"][:3]])
    guard = bf.fit_guard(toys().classifier, METHOD, examples(), clean=clean, false_alarm_rate=0.1, show_progress=False)
    assert guard.threshold.images == len(toys().tested.clean)
    assert guard.detector.summary["sources"] == len(examples()) - held_out_to_measure(guard)


def test_too_few_clean_images_are_refused_before_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benfourier.guard.fit.fit", lambda *_, **__: pytest.fail("the fit was started"))
    with pytest.raises(OptionError, match="that rate needs at least 199"):
        bf.fit_guard(toys().classifier, METHOD, examples(), false_alarm_rate=0.01)


def test_an_id_stands_for_its_method() -> None:
    guard = bf.fit_guard(toys().classifier, "max-softmax", examples(), false_alarm_rate=0.1, show_progress=False)
    assert guard.detector.method.name == "max-softmax"


def blurry(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images of four classes with their labels; a quarter of them shows nothing of its class."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=draws)
    images = 0.5 + 0.1 * torch.randn(count, 1, 8, 8, generator=draws)
    images[torch.arange(count), 0, labels, 0] += 0.5 * (torch.rand(count, generator=draws) > 0.25)
    return images.clamp(0, 1), labels


@cache
def often_wrong() -> bf.Classifier:
    """A network that is right about four of five of these images."""
    images, labels = blurry(4000, seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4))
        optimiser = torch.optim.Adam(module.parameters(), lr=0.01)
        for _ in range(100):
            optimiser.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(module(images), labels))
            optimiser.step()
    return bf.Classifier(module.requires_grad_(False).eval())


@cache
def examples_of_few() -> bf.Examples:
    images, labels = blurry(3000, seed=1)
    return bf.make_examples(often_wrong(), images, labels, attacks={}, noise={"noisy": 0.02}, cache=False)


def test_the_promised_rate_holds_for_new_images_though_many_are_misclassified() -> None:
    examples, (fresh, labels) = examples_of_few(), blurry(6000, seed=2)
    guard = bf.fit_guard(often_wrong(), "max-softmax", examples, false_alarm_rate=0.1, show_progress=False)
    n = guard.threshold.images
    assert n == 600  # a fifth of the 3000 that were attacked, of whom many make no example
    verdicts = guard.check(fresh)
    assert 0.15 < (verdicts.label != labels.numpy()).mean() < 0.25
    # The rate of one guard varies with its n images, the alarms among N more with these: together a deviation of
    # sqrt(0.09 (1/n + 1/N)) = 0.0129. More than 4 of them above or below happen with a probability below 1e-4.
    deviation = np.sqrt(0.1 * 0.9 * (1 / n + 1 / len(fresh)))
    assert abs((~verdicts.accepted).mean() - 0.1) < 4 * deviation
    # two samples, so the distance of their distributions passes this bound with a probability of 0.001 (Kolmogorov)
    assert kstest(verdicts.p_value, "uniform").statistic < 1.95 * np.sqrt(1 / n + 1 / len(fresh)) + 1 / n
    # and this is no easy case: correctly classified images alone set a threshold that is too low
    wrong = bf.fit_guard(
        often_wrong(), "max-softmax", examples, clean=right_ones(), false_alarm_rate=0.1, show_progress=False
    )
    assert (~wrong.check(fresh).accepted).mean() > 0.1 + 4 * deviation


def right_ones() -> Tensor:
    images, labels = blurry(800, seed=3)
    return images[often_wrong().logits(images).argmax(1) == labels]


def test_clean_images_of_the_examples_are_left_out_whether_they_make_an_example_or_not() -> None:
    examples, (images, _), (fresh, _) = examples_of_few(), blurry(3000, seed=1), blurry(100, seed=4)
    guard = bf.fit_guard(often_wrong(), "max-softmax", examples, clean=torch.cat([images, fresh]), show_progress=False)
    assert guard.threshold.images == len(fresh)


def test_more_labelled_images_with_wrong_labels_are_refused() -> None:
    wrong = bf.LabelledImages(toys().clean.images, (toys().clean.labels + 1) % 10)
    with pytest.raises(InputError, match="its classes in another order"):
        bf.fit_guard(toys().classifier, "kd-bu", examples(), labelled=wrong, show_progress=False)
