import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import benfourier as bf
from benfourier.errors import BenfourierError, ClassifierError, ImageError, OptionError
from benfourier.models.identity import classifier_from_description, describe_classifier
from tests.models.networks import (
    Ending,
    Residual,
    expected_columns,
    noise,
    plain,
    resnet,
    seeded,
    stepping,
    tolerance,
)


def ending(end: Callable[[Tensor], object]) -> nn.Module:
    return seeded(lambda: Ending(end))


@pytest.mark.parametrize(
    ("module", "images", "layers"),
    [
        (seeded(plain), noise(), 6),
        (seeded(Residual), noise(), 8),
        (resnet(), noise(2, side=32), 69),
        (ending(lambda logits: logits), noise(), 2),
        (ending(lambda logits: SimpleNamespace(logits=logits)), noise(), 2),
        (ending(lambda logits: {"logits": logits}), noise(), 2),
    ],
    ids=["sequential in place", "residual", "cifar-resnet20", "tensor", "output with logits", "dict"],
)
def test_every_kind_of_classifier_is_observed(module: nn.Module, images: Tensor, layers: int) -> None:
    classifier = bf.Classifier(module)
    features = bf.features(classifier, images)
    assert features.shape == (len(images), layers * 16)
    logits = classifier.logits(images)
    last_two = torch.cat([expected_columns(logits), expected_columns(logits.double().softmax(1))], dim=1)
    assert np.abs(features[:, -32:] - last_two.numpy()).max() <= tolerance(logits.shape[1])


def test_a_transformer_is_observed_by_its_modules() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=16, patch_size=8
    )
    classifier = bf.Classifier(seeded(lambda: transformers.ViTForImageClassification(config)), size=16)
    layers = classifier.layer_names()
    assert layers[-2:] == ["classifier", "soft-max"]
    assert len(classifier.layer_names(nn.LayerNorm)) == 5  # two in each block and one after the last
    features = bf.features(classifier, noise(3, side=16))
    expected = expected_columns(classifier.logits(noise(3, side=16))).numpy()
    assert np.abs(features[:, -32:-16] - expected).max() <= tolerance(2)


def test_bounds_of_zero_and_one_are_the_default() -> None:
    classifier = bf.Classifier(plain())
    assert (classifier.bounds, classifier.resize) == ((0, 1), "exact")
    assert (classifier.size, classifier.channels) == (None, None)


def test_scaling_may_be_an_array() -> None:
    classifier = bf.Classifier(seeded(plain), mean=np.array([0.1, 0.2, 0.3]), std=torch.tensor([0.5, 0.5, 0.5]))  # type: ignore[arg-type]
    assert (classifier.mean, classifier.std, classifier.channels) == ((0.1, 0.2, 0.3), (0.5, 0.5, 0.5), 3)
    assert bf.features(classifier, noise(2)).shape == (2, 96)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"bounds": (1, 0)}, "bounds are (1, 0); they must be two finite numbers, the lower one first"),
        ({"bounds": (1, 1)}, "bounds are (1, 1)"),
        ({"bounds": (0, float("nan"))}, "bounds are (0, nan)"),
        ({"bounds": (0, float("inf"))}, "bounds are (0, inf)"),
        ({"bounds": (0,)}, "bounds are (0,)"),
        ({"bounds": (0, 1, 2)}, "bounds are (0, 1, 2)"),
        ({"bounds": ("a", "b")}, "bounds are ('a', 'b')"),
        ({"bounds": "01"}, "bounds are '01'"),
        ({"bounds": 255}, "bounds are 255"),
        ({"bounds": None}, "bounds are None"),
        ({"mean": 0.5}, "mean is 0.5; it must be finite numbers, one per channel"),
        ({"mean": ()}, "mean is ()"),
        ({"mean": (0.5, float("nan"))}, "mean is (0.5, nan)"),
        ({"mean": ("a",)}, "mean is ('a',)"),
        ({"mean": (0.1, 0.2), "channels": 3}, "mean has 2 values for 3 channels"),
        ({"std": 0.5}, "std is 0.5"),
        ({"std": ()}, "std is ()"),
        (
            {"std": (0.5, 0.0, 0.5)},
            "std is (0.5, 0.0, 0.5); it must be finite numbers",
        ),
        ({"std": (-1.0,)}, "std is (-1.0,)"),
        ({"std": (1.0, 1.0), "mean": (0.1, 0.2, 0.3)}, "std has 2 values for 3 channels"),
        ({"resize": "crop"}, "resize is 'crop'; allowed: exact, shorter-side-crop, stretch"),
        ({"resize": "strech"}, "did you mean 'stretch'?"),
        ({"resize": None}, "resize is None"),
        ({"size": 0}, "size is 0; it must be a whole number of at least 1"),
        ({"size": 1.5}, "size is 1.5"),
        ({"size": True}, "size is True"),
        ({"size": "32"}, "size is '32'"),
        ({"size": (8, -1)}, "size is -1"),
        ({"size": (32,)}, "size is (32,); it must be one whole number, or height and width"),
        ({"size": (3, 32, 32)}, "size is (3, 32, 32)"),
        ({"channels": 0}, "channels is 0"),
        ({"channels": 3.0}, "channels is 3.0"),
        ({"channels": True}, "channels is True"),
    ],
)
def test_a_classifier_with_a_bad_option_is_refused_with_the_value(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=re.escape(complaint)):
        bf.Classifier(plain(), **options)


@pytest.mark.parametrize("module", ["net", None, nn.Linear, lambda images: images])
def test_what_is_no_module_is_refused(module: Any) -> None:
    with pytest.raises(ClassifierError, match=f"module is a {type(module).__name__}; it must be a torch.nn.Module"):
        bf.Classifier(module)


BAD_IMAGES: dict[str, tuple[Any, str]] = {
    "above": (noise() + 0.5, "to 1.49"),
    "below": (noise() - 0.25, "images have values from -0.24"),
    "infinite": (noise() / 0, "to inf; the classifier's bounds are (0.0, 1.0)"),
    "NaN": (torch.stack([noise()[0], noise()[0] * torch.nan]), "images [1] contain NaN"),
    "one image": (noise()[0], "images have shape (3, 12, 12); it must be (N, C, H, W)"),
    "five dimensions": (noise()[None], "images have shape (1, 4, 3, 12, 12)"),
    "empty batch": (noise()[:0], "images have shape (0, 3, 12, 12)"),
    "no pixels": (torch.rand(2, 3, 0, 12), "images have shape (2, 3, 0, 12)"),
    "channels": (noise(channels=1), "images have channels 1; this classifier takes 3"),
    "size": (noise(side=13), "images have size (13, 13); this classifier takes (12, 12)"),
    "uint8": (torch.zeros(2, 3, 12, 12, dtype=torch.uint8), "images are torch.uint8"),
    "int64": (torch.zeros(2, 3, 12, 12, dtype=torch.int64), "go through benfourier.load_images"),
    "bool": (torch.zeros(2, 3, 12, 12, dtype=torch.bool), "images are torch.bool"),
    "complex": (torch.zeros(2, 3, 12, 12, dtype=torch.complex64), "images are torch.complex64"),
    "array": (noise().numpy(), "images are ndarray; they must be a floating tensor"),
    "list": ([[0.5]], "images are list"),
    "None": (None, "images are NoneType"),
}


@pytest.mark.parametrize("case", BAD_IMAGES)
def test_images_that_cannot_be_shown_are_refused_with_the_reason(case: str) -> None:
    images, complaint = BAD_IMAGES[case]
    classifier = bf.Classifier(plain(), size=12, channels=3)
    for call in (classifier.logits, lambda images: bf.features(classifier, images)):
        with pytest.raises(ImageError, match=re.escape(complaint)):
            call(images)


@pytest.mark.parametrize("option", ["mean", "std"])
def test_the_number_of_channels_is_known_from_the_scaling(option: str) -> None:
    classifier = bf.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(432, 5)), **{option: (0.5, 0.5, 0.5)})  # type: ignore[arg-type]
    with pytest.raises(ImageError, match="images have channels 1; this classifier takes 3"):
        bf.features(classifier, noise(channels=1))


@pytest.mark.parametrize("images", [noise(channels=1), noise(side=2)])
def test_images_that_the_module_cannot_take_are_refused_with_their_shape(images: Tensor) -> None:
    classifier = bf.Classifier(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(400, 5)))
    with pytest.raises(ClassifierError, match=re.escape(str(tuple(images.shape[1:])))):
        bf.features(classifier, images)


def test_values_off_the_bounds_by_rounding_are_accepted() -> None:
    images = noise(2)
    images[0, 0, 0, 0] = float(np.nextafter(np.float32(1), np.float32(2)))
    assert bf.features(bf.Classifier(seeded(plain)), images).shape == (2, 96)


@pytest.mark.parametrize(
    ("end", "complaint"),
    [
        (lambda logits: "cat", "the module returned str; it must return logits"),
        (lambda logits: None, "the module returned NoneType"),
        (lambda logits: (logits, logits), "the module returned tuple"),
        (lambda logits: {"scores": logits}, "the module returned dict"),
        (lambda logits: SimpleNamespace(logits=None), "the module returned SimpleNamespace"),
        (lambda logits: logits.argmax(1), "it must return logits: a floating tensor"),
        (lambda logits: logits[:, 0], "the module returned a tensor of shape (3,) for 3 images"),
        (lambda logits: logits[None], "the module returned a tensor of shape (1, 3, 5) for 3 images"),
        (lambda logits: logits[:1], "the module returned a tensor of shape (1, 5) for 3 images"),
        (lambda logits: logits[:3], "the module returned a tensor of shape (3, 5) for 4 images"),
        (lambda logits: logits[:, :1], "the module returned a tensor of shape (3, 1) for 3 images"),
        (lambda logits: logits.softmax(1), "the module returns probabilities"),
        (lambda logits: logits.bfloat16().softmax(1), "the module returns probabilities"),
    ],
)
def test_a_module_that_returns_no_logits_is_refused(end: Callable[[Tensor], object], complaint: str) -> None:
    with pytest.raises(ClassifierError, match=re.escape(complaint)):
        bf.features(bf.Classifier(ending(end)), noise(4))


def test_log_posteriors_are_logits() -> None:
    logits = bf.features(bf.Classifier(ending(lambda logits: logits)), noise(), layers="soft-max")
    logs = bf.features(bf.Classifier(ending(lambda logits: logits.log_softmax(1))), noise(), layers="soft-max")
    assert np.abs(logits - logs).max() <= tolerance(5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_logits_are_computed_in_the_modules_own_precision(dtype: torch.dtype) -> None:
    net = seeded(plain).to(dtype).eval()
    logits = bf.Classifier(net).logits(noise())
    assert logits.dtype == dtype
    assert torch.equal(logits, net(noise().to(dtype)))


def test_a_failure_of_the_module_itself_reaches_the_caller() -> None:
    def fail(maps: Tensor) -> Tensor:
        if maps.sum() == 0:
            raise KeyError("darkness")
        return maps

    classifier = bf.Classifier(stepping(fail))
    with pytest.raises(KeyError, match="darkness"):
        bf.features(classifier, torch.zeros(2, 3, 12, 12))


def test_every_refusal_is_of_one_family() -> None:
    with pytest.raises(BenfourierError):
        bf.Classifier("net")  # type: ignore[arg-type]
    with pytest.raises(BenfourierError):
        bf.Classifier(plain()).check_images(noise() + 2)


def test_noise_lies_within_the_bounds_and_belongs_to_its_seed() -> None:
    classifier = bf.Classifier(seeded(plain), bounds=(-2, 3), size=12, channels=3)
    images = classifier.noise(5)
    assert images.shape == (5, 3, 12, 12)
    classifier.check_images(images)
    assert float(images.min()) < -1.9
    assert float(images.max()) > 2.9
    assert torch.equal(images, classifier.noise(5, seed=0))
    assert not torch.equal(images, classifier.noise(5, seed=1))
    assert classifier.noise(1, (3, 4, 5)).shape == (1, 3, 4, 5)
    with pytest.raises(ClassifierError, match="the shape of the images is unknown"):
        bf.Classifier(seeded(plain)).noise(1)


def test_a_description_gives_the_same_image_format_back() -> None:
    options: dict[str, Any] = {"bounds": (0, 2), "mean": (0.1, 0.2, 0.3), "size": (12, 12), "resize": "stretch"}
    classifier = bf.Classifier(seeded(plain), classes=list("abcde"), **options)
    description = json.loads(json.dumps(describe_classifier(classifier)))
    again = classifier_from_description("file", description, classifier.module)
    for name in ("bounds", "mean", "std", "size", "channels", "resize"):
        assert getattr(again, name) == getattr(classifier, name)
    assert again.classes == ["a", "b", "c", "d", "e"]
    assert describe_classifier(again) == description
    assert description["layers"] == classifier.layer_names(pass_through=True)
    assert description["channels"] == 3


def test_one_number_stands_for_height_and_width() -> None:
    assert bf.Classifier(seeded(plain), size=12).size == bf.Classifier(seeded(plain), size=[12, 12]).size == (12, 12)
