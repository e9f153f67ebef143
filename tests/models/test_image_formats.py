"""Classifiers from what transformers, torchvision and timm record of a network's images."""

from collections.abc import Callable
from enum import Enum
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import benfourier as bf
from benfourier.errors import ImageError, InputError, OptionError
from tests.models.networks import plain, seeded

transformers = pytest.importorskip("transformers")

SIDE = 32
# Both sides resample with Pillow and differ only in the order of float32 operations: a few units in the last place.
ROUNDING = 1e-5


def vit(channels: int = 3, **options: Any) -> nn.Module:
    layers = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    images = {"image_size": SIDE, "patch_size": 8, "num_channels": channels}
    config = transformers.ViTConfig(**{**layers, **images, **options})
    module: nn.Module = seeded(lambda: transformers.ViTForImageClassification(config)).eval()
    return module


def resnet(channels: int = 3, **options: Any) -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_channels=channels, **options
    )
    module: nn.Module = seeded(lambda: transformers.ResNetForImageClassification(config)).eval()
    return module


def picture(height: int, width: int, channels: int = 3) -> Image.Image:
    pixels = np.random.default_rng(5).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels)


def png(image: Image.Image) -> bytes:
    out = BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


SQUARE, EDGE = {"height": SIDE, "width": SIDE}, {"shortest_edge": 40}
PROCESSORS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # class, its options, what the classifier has
    "stretched": ("ViTImageProcessorPil", {"size": SQUARE}, {"bounds": (0, 1), "resize": "stretch:bilinear"}),
    "one number": ("ViTImageProcessorPil", {"size": SIDE}, {"size": (SIDE, SIDE), "mean": (0.5, 0.5, 0.5)}),
    "shorter side, then cut": (
        "CLIPImageProcessorPil",
        {"size": EDGE, "crop_size": SQUARE},
        {"size": (SIDE, SIDE), "resize": "shorter-side-crop:40:bicubic"},
    ),
    "cut, with one number": ("CLIPImageProcessorPil", {"size": 40, "crop_size": SIDE}, {"size": (SIDE, SIDE)}),
    "stretched, then cut": (
        "DeiTImageProcessorPil",
        {"size": {"height": 40, "width": 40}, "crop_size": SQUARE, "resample": 1},
        {"resize": "stretch:40:lanczos"},
    ),
    "share of the shorter side": (
        "ConvNextImageProcessorPil",
        {"size": {"shortest_edge": SIDE}},
        {"resize": "shorter-side-crop:36:bicubic"},
    ),
    "share of a large side": ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 384}}, {"size": (384, 384)}),
    "other factor": (
        "ViTImageProcessorPil",
        {"size": SIDE, "rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3},
        {"bounds": (0, 2), "mean": (1, 1, 1)},
    ),
    "not rescaled": (
        "ViTImageProcessorPil",
        {"size": SIDE, "do_rescale": False, "image_mean": [120.0, 110.0, 100.0], "image_std": [60.0] * 3},
        {"bounds": (0, 255), "mean": (120, 110, 100)},
    ),
    "not normalised": ("ViTImageProcessorPil", {"size": SIDE, "do_normalize": False}, {"mean": None, "std": None}),
}


@pytest.mark.parametrize("model", [vit, resnet])
@pytest.mark.parametrize("case", PROCESSORS)
def test_files_give_the_logits_of_the_processor_and_the_model(case: str, model: Callable[..., nn.Module]) -> None:
    name, options, expected = PROCESSORS[case]
    processor = getattr(transformers, name)(**options)
    module = model(image_size=max(expected.get("size", [SIDE])))
    classifier = bf.Classifier.from_huggingface(module, processor)
    assert {option: getattr(classifier, option) for option in expected} == expected
    for shape in ((50, 71), (71, 50), (20, 29), (33, 33)):
        image = picture(*shape)
        with torch.no_grad():
            logits = module(processor(image, return_tensors="pt")["pixel_values"]).logits
        own = classifier.logits(bf.load_images(png(image), classifier)).detach()
        assert (own - logits).abs().max() <= ROUNDING * logits.abs().max(), shape


def test_a_file_of_the_networks_size_is_not_scaled_and_cut() -> None:
    # what an attack wrote into the pixels must stay
    processor = transformers.CLIPImageProcessorPil(size=EDGE, crop_size=SQUARE)
    classifier, image = bf.Classifier.from_huggingface(resnet(), processor), picture(SIDE, SIDE)
    pixels = bf.load_images(png(image), classifier)
    assert np.array_equal((pixels[0] * 255).round().byte().permute(1, 2, 0).numpy(), np.asarray(image))


@pytest.mark.parametrize("model", [vit, resnet])
def test_a_grey_network_takes_grey_and_colour_files(model: Callable[..., nn.Module]) -> None:
    module = model(1)
    processor = transformers.ViTImageProcessorPil(size=SIDE, image_mean=[0.3], image_std=[0.2])
    classifier = bf.Classifier.from_huggingface(module, processor)
    assert (classifier.channels, classifier.mean) == (1, (0.3,))
    for image in (picture(40, 50, 1), picture(40, 50)):
        with torch.no_grad():
            logits = module(processor(image.convert("L"), return_tensors="pt")["pixel_values"]).logits
        own = classifier.logits(bf.load_images(png(image), classifier)).detach()
        assert (own - logits).abs().max() <= ROUNDING * logits.abs().max()


def test_a_processor_that_leaves_sizes_alone_takes_the_size_of_the_model() -> None:
    processor = transformers.ViTImageProcessorPil(do_resize=False)
    assert bf.Classifier.from_huggingface(vit(), processor).size == (SIDE, SIDE)
    assert bf.Classifier.from_huggingface(resnet(), processor).size is None


def test_class_names_are_those_of_the_model_if_it_has_some() -> None:
    processor = transformers.ViTImageProcessorPil(size=SIDE)
    named = vit(id2label={1: "dog", 0: "cat", 2: "cow"}, label2id={"cat": 0, "dog": 1, "cow": 2})
    assert bf.Classifier.from_huggingface(named, processor).classes == ["cat", "dog", "cow"]
    assert bf.Classifier.from_huggingface(vit(num_labels=4), processor).classes is None
    assert bf.Classifier.from_huggingface(named, processor, classes=list("abc")).classes == ["a", "b", "c"]
    gaps = vit(id2label={0: "cat", 5: "dog"}, label2id={"cat": 0, "dog": 5})
    with pytest.raises(InputError, match=r"id2label numbers its classes \[0, 5\]"):
        bf.Classifier.from_huggingface(gaps, processor)


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("ViTImageProcessorPil", {"size": {"shortest_edge": SIDE}}, "from which images of different shapes come"),
        ("DetrImageProcessorPil", {"size": {"shortest_edge": 32, "longest_edge": 64}}, "images of different shapes"),
        ("LevitImageProcessorPil", {"size": {"shortest_edge": SIDE}, "crop_size": SQUARE}, "other images than its"),
        ("MobileViTImageProcessorPil", {"size": EDGE, "crop_size": SQUARE}, r"by \d+\.\d levels of 255 on average"),
        ("ViTImageProcessorPil", {"size": SIDE, "image_mean": [0.5]}, "cannot be run on a trial picture"),
        ("CLIPImageProcessorPil", {"size": {"shortest_edge": 30}, "crop_size": SQUARE}, "side must be at least 32"),
    ],
)
def test_a_processor_that_does_more_than_a_classifier_can_say_is_refused(
    name: str, options: dict[str, Any], complaint: str
) -> None:
    processor = getattr(transformers, name)(**options)
    with pytest.raises(InputError, match=complaint) as error:
        bf.Classifier.from_huggingface(resnet(), processor)
    assert "\n" not in str(error.value)


def test_a_model_of_transformers_is_protected(tmp_path: Any) -> None:
    processor = transformers.ViTImageProcessorPil(size=SIDE, image_mean=[0.5], image_std=[0.5])
    shades = torch.arange(160) % 2
    images = (0.3 + 0.4 * shades).view(-1, 1, 1, 1) + 0.1 * torch.rand(
        160, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0)
    )
    module = vit(1)
    optimiser = torch.optim.Adam(module.parameters(), lr=5e-3)
    for _ in range(30):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(module(images * 2 - 1).logits, shades))
        optimiser.step()
    classifier = bf.Classifier.from_huggingface(module, processor)
    data: dict[str, Any] = {"attacks": None, "budget": 1e-3, "report": lambda _: None, "show_progress": False}
    guard = bf.protect(classifier, images, shades, **data)
    guard.save(tmp_path / "guard.bf")
    again = bf.load_guard(tmp_path / "guard.bf", module)
    assert np.array_equal(again.check(images[:5]).score, guard.check(images[:5]).score)
    bare = bf.protect(module, images, shades, mean=[0.5], std=[0.5], **data)
    assert bare.threshold == guard.threshold
    result = bf.attack("bim", classifier, images[:8], shades[:8], show_progress=False)
    assert bool(result.success.any())


class InterpolationMode(Enum):
    """As in torchvision, which cannot be installed beside the CPU build of torch."""

    BILINEAR = "bilinear"
    NEAREST_EXACT = "nearest-exact"


def weights(**changes: Any) -> Any:
    """The record of torchvision's ResNet18_Weights.IMAGENET1K_V1 with three categories."""
    preset = {
        "crop_size": [224],
        "resize_size": [256],
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
        "interpolation": InterpolationMode.BILINEAR,
        "antialias": True,
    }
    meta = {"min_size": (1, 1), "categories": ["tench", "goldfish", "great white shark"], "num_params": 11689512}
    return SimpleNamespace(transforms=lambda: SimpleNamespace(**{**preset, **changes}), meta=meta)


def test_weights_of_torchvision_say_how_images_enter() -> None:
    classifier = bf.Classifier.from_torchvision(seeded(plain), weights())
    assert (classifier.size, classifier.resize) == ((224, 224), "shorter-side-crop:256:bilinear")
    assert (classifier.mean, classifier.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (classifier.bounds, classifier.classes) == ((0, 1), ["tench", "goldfish", "great white shark"])
    assert bf.Classifier.from_torchvision(seeded(plain), weights(), classes=list("abcde")).classes == list("abcde")


def test_torchvisions_resizing_and_cutting_are_followed() -> None:
    # its Resize makes int(256 · 401 / 300) = 342 columns, and its CenterCrop cuts (342 - 224) / 2 = 59 of them
    image = picture(300, 401)
    expected = image.resize((342, 256), Image.Resampling.BILINEAR).crop((59, 16, 59 + 224, 16 + 224))
    classifier = bf.Classifier.from_torchvision(seeded(plain), weights())
    images = bf.load_images(png(image), classifier)
    assert np.array_equal(as_bytes(images), np.asarray(expected))


def as_bytes(images: torch.Tensor) -> NDArray[np.uint8]:
    return np.asarray((images[0] * 255).round().byte().permute(1, 2, 0).numpy())


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (weights(resize_size=[256, 256]), r"transforms have resize_size \[256, 256\]; it must be one"),
        (weights(interpolation=InterpolationMode.NEAREST_EXACT), "shorter-side-crop:256:nearest-exact"),
        (weights(resize_size=[200]), "the side must be at least 224"),
        (SimpleNamespace(transforms=lambda: nn.Identity(), meta={}), "the weights' transforms have no crop_size"),
    ],
)
def test_transforms_of_another_kind_are_refused(record: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        bf.Classifier.from_torchvision(seeded(plain), record)


def timm_model(num_classes: int = 3, **changes: Any) -> nn.Module:
    """A module with the record of timm's resnet50d.ra4_e3600_r224_in1k and three label names."""
    module = seeded(plain)
    record = {
        "input_size": (3, 224, 224),
        "test_input_size": (3, 288, 288),
        "fixed_input_size": False,
        "interpolation": "bicubic",
        "crop_pct": 0.95,
        "test_crop_pct": 1.0,
        "crop_mode": "center",
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "num_classes": 3,
        "label_names": ("cat", "dog", "cow"),
    }
    module.pretrained_cfg, module.num_classes = {**record, **changes}, num_classes  # type: ignore[assignment]
    return module


def test_a_model_of_timm_says_how_images_enter() -> None:
    classifier = bf.Classifier.from_timm(timm_model())
    assert (classifier.size, classifier.channels) == ((224, 224), 3)
    assert classifier.resize == "shorter-side-crop:235:bicubic"  # floor(224 / 0.95)
    assert (classifier.mean, classifier.std, classifier.bounds) == ((0.5,) * 3, (0.5,) * 3, (0, 1))
    assert classifier.classes == ["cat", "dog", "cow"]
    assert bf.Classifier.from_timm(timm_model(num_classes=5)).classes is None  # a head of one's own
    squashed = bf.Classifier.from_timm(timm_model(crop_mode="squash", crop_pct=1.0))
    assert squashed.resize == "stretch:224:bicubic"
    as_object = timm_model()
    as_object.pretrained_cfg = SimpleNamespace(**as_object.pretrained_cfg)  # type: ignore[arg-type, assignment]
    assert bf.Classifier.from_timm(as_object).resize == classifier.resize


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"crop_mode": "border"}, "crop_mode 'border'"),
        ({"input_size": (3, 224, 320)}, r"input_size \(3, 224, 320\)"),
        ({"interpolation": "random"}, "shorter-side-crop:235:random"),
    ],
)
def test_a_record_of_timm_that_a_classifier_cannot_follow_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        bf.Classifier.from_timm(timm_model(**changes))


def test_a_module_without_timms_record_is_refused() -> None:
    with pytest.raises(InputError, match="Sequential has no pretrained_cfg, which models of timm have"):
        bf.Classifier.from_timm(seeded(plain))


@pytest.mark.parametrize(
    "rule",
    ["exact:256", "stretch:", "stretch:bicubic:256", "stretch:cubic", "stretch:0", "shorter-side-crop:256:", "crop:3"],
)
def test_a_resize_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(OptionError, match=f"resize is '{rule}'|resize is 0"):
        bf.Classifier(seeded(plain), resize=rule)


def test_the_side_of_a_resize_rule_must_cover_the_size() -> None:
    assert bf.Classifier(seeded(plain), size=(30, 40), resize="stretch:40").resize == "stretch:40"
    with pytest.raises(OptionError, match="scales to 39 pixels before 30×40 are cut out; the side must be at least 40"):
        bf.Classifier(seeded(plain), size=(30, 40), resize="stretch:39")


def test_a_very_long_picture_is_cut_before_it_is_scaled_to_a_side() -> None:
    long = picture(2, 20_000)  # scaled as a whole it would have 2.56 million columns
    images = bf.load_images(png(long), bf.Classifier(seeded(plain), size=224, resize="shorter-side-crop:256:bicubic"))
    assert images.shape == (1, 3, 224, 224)


def test_a_picture_of_another_size_is_refused_without_a_rule() -> None:
    with pytest.raises(ImageError, match="the image is 3×4, not 12×12"):
        bf.load_images(png(picture(3, 4)), bf.Classifier(seeded(plain), size=12))
