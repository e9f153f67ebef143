"""Views: what each does to an image, which ones suit the data, and the margins that become features."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.detectors.extractor import margins_of
from benfourier.detectors.features import extract
from benfourier.detectors.heads import Plain
from benfourier.detectors.method import FitData
from benfourier.detectors.views import (
    LEVELS,
    VIEWS,
    View,
    ViewMargins,
    Views,
    blur,
    coarse,
    median,
    mirror,
    other_shift,
    shift,
)
from benfourier.errors import FitError, InputError, OptionError
from tests.detectors.toys import toys


def images_of(count: int = 3, side: int = 9, seed: int = 0) -> Tensor:
    return torch.rand(count, 2, side, side, generator=torch.Generator().manual_seed(seed))


def neighbourhoods(images: Tensor) -> Tensor:
    """The 3×3 pixels around each pixel, (N, C, 9, H, W), borders reflected."""
    padded = nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    windows = nn.functional.unfold(padded.flatten(0, 1).unsqueeze(1), 3)
    return windows.view(*images.shape[:2], 9, *images.shape[2:])


def test_the_median_is_that_of_the_nine_pixels_around() -> None:
    images = images_of()
    assert torch.equal(median(images), neighbourhoods(images).median(2).values)


def test_the_blur_has_binomial_weights() -> None:
    images = images_of()
    weights = torch.tensor([1, 2, 1, 2, 4, 2, 1, 2, 1]).view(9, 1, 1) / 16
    assert torch.allclose(blur(images), (neighbourhoods(images) * weights).sum(2), atol=1e-6)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-0.5, 0.5)])
def test_coarse_pixels_take_the_nearest_level_within_the_bounds(bounds: tuple[float, float]) -> None:
    images = torch.tensor([0.0, 0.1, 0.2, 0.4, 0.7, 0.8, 1.0]) + bounds[0]
    expected = torch.tensor([0.0, 0.0, 0.0, 0.5, 0.5, 1.0, 1.0]) + bounds[0]
    torch.testing.assert_close(coarse(images, 3, bounds), expected)
    images.requires_grad_()
    (gradient,) = torch.autograd.grad(coarse(images, 3, bounds).sum(), images)
    assert torch.equal(gradient, torch.ones(7))


def test_the_mirror_image_of_the_mirror_image_is_the_image() -> None:
    assert torch.equal(mirror(mirror(images_of())), images_of())
    assert torch.equal(mirror(images_of())[..., 0], images_of()[..., -1])


@pytest.mark.parametrize(("side", "pixels"), [(16, (1, 1, -2)), (32, (1, 1, -2)), (224, (3, 3, -5))])
def test_shifts_grow_with_the_image(side: int, pixels: tuple[int, int, int]) -> None:
    images, (down, right, up) = images_of(1, side), pixels
    assert torch.equal(shift(images)[:, :, down:, right:], images[:, :, :-down, :-right])
    assert torch.equal(other_shift(images)[:, :, :up, right:], images[:, :, -up:, :-right])


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_keeps_shape_and_bounds_and_lets_gradients_through(name: str) -> None:
    images = images_of().requires_grad_()
    changed = VIEWS[name](images)
    assert changed.shape == images.shape
    assert 0 <= float(changed.detach().min()) <= float(changed.detach().max()) <= 1 + 1e-6
    (gradient,) = torch.autograd.grad(changed.sum(), images)
    assert torch.allclose(gradient.sum(), torch.tensor(float(images.numel())), rtol=0.05)  # each pixel has weight 1


def test_margins_lead_over_the_highest_others_in_order() -> None:
    logits = torch.tensor([[1.0, 5.0, 3.0, 4.5], [2.0, 0.0, -1.0, 1.0]])
    assert margins_of(logits, torch.tensor([1, 3]), 2).tolist() == [[0.5, 2.0], [-1.0, 1.0]]


def fitted(**options: object) -> bf.Detector:
    data = toys()
    return bf.fit("views", data.classifier, data.fitted.for_attack("bim"), show_progress=False, **options)  # type: ignore[arg-type]


def test_features_are_the_margins_of_the_image_and_of_every_view() -> None:
    data, detector = toys(), fitted(views=("median", "shift"), agreement=0.0, top=2)
    images = data.tested.clean[:5]
    logits, features, _ = detector.forward(images)
    labels = logits.argmax(1)
    views = [images, median(images), shift(images)]
    expected = torch.cat([margins_of(data.classifier.logits(view), labels, 2) for view in views], 1)
    assert torch.allclose(features, expected.double(), atol=1e-4)
    assert detector.feature_names == ("image", "image", "median", "median", "shift", "shift")
    assert detector.head.__class__.__name__ == "Logistic"


def test_small_batches_of_all_views_share_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    data, passes, names = toys(), [], ("mirror", "median", "4-levels")
    extractor = ViewMargins(names, 1)
    hook = data.classifier.module.register_forward_pre_hook(lambda module, inputs: passes.append(len(inputs[0])))
    with hook, torch.no_grad():
        extractor.view_logits(data.classifier, data.tested.clean[:2])
    assert passes == [2 * len(names)]


def lead(images: Tensor, view: View) -> Tensor:
    """By how much the predicted class of each image leads in a view of it, (N,)."""
    classifier = toys().classifier
    return margins_of(classifier.logits(view(images)), classifier.logits(images).argmax(1), 1)[:, 0].double()


@torch.no_grad()
def test_the_drop_is_what_views_lack_of_the_margin_that_they_leave_to_clean_images() -> None:
    data, views = toys(), ("median", "shift")
    examples, tested = data.fitted.for_attack("bim"), data.tested.adversarial["bim"]
    method = bf.make_method("views", views=views, features="drop", agreement=0.0)
    extractor = method.fit_extractor(data.classifier, FitData(examples))
    expected = torch.zeros(len(tested), dtype=torch.float64)
    for view in map(VIEWS.__getitem__, views):
        clean, own = lead(examples.clean, view), lead(examples.clean, lambda images: images)
        share = clean.mean() / own.mean()
        deviation = (clean - share * own).std(correction=0)
        expected += (0.8 * share * lead(tested, lambda images: images) - lead(tested, view)) / deviation / 2
    (features,) = extract(data.classifier, [extractor], tested, data.tested.ids, show_progress=False)
    np.testing.assert_allclose(features[:, 0].numpy(), expected.numpy(), atol=1e-3)


def test_the_drop_needs_no_attacked_images_and_no_head(tmp_path: Path) -> None:
    data = toys()
    clean, labels = data.fitted.clean, data.fitted.labels
    examples = bf.make_examples(data.classifier, clean, labels, attacks={}, noise={"noisy": 0.01}, cache=False)
    with pytest.raises(FitError, match="needs at least 2: attack more images, or set features='drop'"):
        bf.fit("views", data.classifier, examples, show_progress=False)
    detector = bf.fit("views", data.classifier, examples, features="drop", agreement=0.3, show_progress=False)
    assert isinstance(detector.head, Plain)
    assert detector.feature_names == ("drop",)
    left_out = detector.extractor.margins.left_out  # type: ignore[attr-defined]
    assert detector.summary["learned"]["left_out"] == left_out
    detector.save(tmp_path / "drop.bf")
    again, tested = bf.load(tmp_path / "drop.bf", data.classifier), data.tested
    np.testing.assert_array_equal(again.score(tested.clean), detector.score(tested.clean))
    assert np.mean(detector.score(tested.adversarial["bim"])) > np.mean(detector.score(tested.clean))


class Striped(nn.Module):
    """Says where the bright half of an image is: left (0), right (1), top (2) or bottom (3)."""

    def forward(self, images: Tensor) -> Tensor:
        half = images.shape[3] // 2
        halves = (images[..., :half], images[..., half:], images[..., :half, :], images[..., half:, :])
        return 10 * torch.stack([part.mean((1, 2, 3)) for part in halves], 1)


def striped_examples(count: int = 60) -> tuple[bf.Classifier, bf.Examples]:
    """Images whose mirror image belongs to another class, as with digits."""
    generator = torch.Generator().manual_seed(1)
    images = 0.3 * torch.rand(count, 1, 8, 8, generator=generator)
    images[: count // 2, :, :, :4] += 0.5
    images[count // 2 :, :, :, 4:] += 0.5
    labels = torch.tensor([0] * (count // 2) + [1] * (count - count // 2))
    attacked = (images + 0.2 * torch.rand(images.shape, generator=generator)).clamp(0, 1)
    success = {"noise": torch.ones(count, dtype=torch.bool)}
    names = tuple(map(str, range(count)))
    examples = bf.Examples(images, {"noisy": images}, {"noise": attacked}, success, labels, names,
                           {"noisy": 0.0}, (("images", count),), 0)  # fmt: skip
    return bf.Classifier(Striped(), bounds=(0.0, 1.0), size=8, channels=1), examples


def test_two_levels_stand_in_for_a_mirror_image_that_changes_too_many_labels() -> None:
    classifier, examples = striped_examples()
    detector = bf.fit("views", classifier, examples, views=("fast",), show_progress=False)
    assert isinstance(detector.extractor, ViewMargins)
    assert detector.extractor.views == ("2-levels",)  # halves of the images lie above and below the middle
    assert detector.summary["learned"]["left_out"] == "mirror (0%)"


def test_a_rotation_stands_in_where_two_levels_are_there_already() -> None:
    classifier, examples = striped_examples()
    detector = bf.fit("views", classifier, examples, show_progress=False)
    assert isinstance(detector.extractor, ViewMargins)
    assert detector.extractor.views == ("rotation", "median", "2-levels", "shift", "other-shift")
    assert detector.summary["learned"]["left_out"] == "mirror (0%)"


def test_a_rotation_stands_in_where_two_levels_change_too_many_labels() -> None:
    classifier, examples = striped_examples()
    right = examples.take(range(30, 60), "right")
    darker = replace(right, clean=right.clean / 8)  # all pixels are nearer to 0 than to 1
    extractor = Views().fit_extractor(classifier, FitData(darker, show_progress=False))
    assert isinstance(extractor, ViewMargins)
    names = list(LEVELS)
    shares = [agreement(classifier, darker.clean, partial(coarse, levels=n, bounds=(0, 1))) for n in LEVELS.values()]
    first = next(name for name, share in zip(names, shares, strict=True) if share >= Views().agreement)
    assert first != "2-levels"
    assert extractor.views == ("rotation", "median", first, "shift", "other-shift")


def agreement(classifier: bf.Classifier, images: Tensor, view: View) -> float:
    """The share of images that keep their label under a view."""
    return float((classifier.logits(view(images)).argmax(1) == classifier.logits(images).argmax(1)).float().mean())


def test_a_coarse_view_that_changes_labels_at_every_level_is_left_out() -> None:
    classifier, examples = striped_examples()
    right = examples.take(range(30, 60), "right")
    darkest = replace(right, clean=right.clean / 100)  # below half of the finest level: all pixels become 0
    extractor = Views().fit_extractor(classifier, FitData(darkest, show_progress=False))
    assert isinstance(extractor, ViewMargins)
    assert extractor.views == ("rotation", "median", "shift", "other-shift")
    assert extractor.left_out == "mirror (0%), coarse (0%)"


def test_views_that_all_change_labels_are_refused_with_their_shares() -> None:
    classifier, examples = striped_examples()
    with pytest.raises(FitError, match=r"under no view do 50% of the clean images keep their label: mirror \(0%\)"):
        bf.fit("views", classifier, examples, views=("mirror",), show_progress=False)


def test_a_users_own_view_is_saved_by_name_and_supplied_again(tmp_path: Path) -> None:
    data = toys()
    supplied = {"darker": lambda images: 0.9 * images}
    detector = fitted(views=("mirror", "darker"), agreement=0.0, supplied=supplied)
    detector.save(tmp_path / "views.bf")
    again = bf.load(tmp_path / "views.bf", data.classifier, supplied=supplied)
    images = data.tested.clean
    np.testing.assert_array_equal(again.score(images), detector.score(images))
    with pytest.raises(InputError, match="views needs 'darker', which neither options nor files can hold"):
        bf.load(tmp_path / "views.bf", data.classifier)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda images: images[:, :, 1:], r"view 'own' makes \(.*\) of \(.*\); it must return images of that shape"),
        (lambda images: images + 0.5, "view 'own' gives values from .* to .*; the classifier's bounds are"),
        (lambda images: images * float("nan"), "view 'own' gives values from nan to nan"),
        ("blurred", "view 'own' is 'blurred'; it must be a function of images"),
    ],
)
def test_a_bad_view_is_refused(view: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(views=("own",), agreement=0.0, supplied={"own": view})


def test_more_other_classes_than_there_are_is_refused() -> None:
    with pytest.raises(OptionError, match="top is 99; the classifier has"):
        fitted(top=99)
