import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import benfourier as bf
from benfourier.data.image_files import resize
from benfourier.errors import ImageError, OptionError
from benfourier.models.images import from_pixels, to_pixels
from tests.models.networks import plain

COLOUR = np.random.default_rng(1).integers(0, 256, (2, 5, 7, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]
RULES = ("exact", "shorter-side-crop", "stretch")


def classifier_of(channels: int | None = None, **options: Any) -> bf.Classifier:
    return bf.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(2, 2)), channels=channels, **options)


def saved(folder: Path, pixels: NDArray[np.uint8], name: str = "picture.png") -> Path:
    path = folder / name
    Image.fromarray(pixels).save(path)
    return path


def as_pixels(images: torch.Tensor) -> NDArray[np.uint8]:
    """Images in (0, 1) as uint8 (N, H, W, C) again."""
    return np.asarray((images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy())


@pytest.mark.parametrize(
    ("values", "channels", "layout", "expected"),
    [
        (COLOUR, None, None, COLOUR),
        (COLOUR, 3, None, COLOUR),
        (COLOUR, 3, "NHWC", COLOUR),
        (COLOUR.transpose(0, 3, 1, 2), None, None, COLOUR),
        (COLOUR.transpose(0, 3, 1, 2), 3, "NCHW", COLOUR),
        (COLOUR[0], 3, None, COLOUR[:1]),
        (COLOUR[0], 3, "NHWC", COLOUR[:1]),
        (COLOUR[0].transpose(2, 0, 1), 3, "NCHW", COLOUR[:1]),
        (GREY[0], None, None, GREY[:1, ..., None]),
        (GREY, None, None, GREY[..., None]),
        (GREY, 1, None, GREY[..., None]),
        (GREY[..., None], 1, None, GREY[..., None]),
        (GREY[:, None], 1, None, GREY[..., None]),
        (COLOUR[:, :3], 3, "NHWC", COLOUR[:, :3]),
        (torch.from_numpy(COLOUR), 3, None, COLOUR),
        (torch.from_numpy(COLOUR).permute(0, 3, 1, 2), 3, None, COLOUR),
        (COLOUR[:, ::-1, ::-1], 3, None, COLOUR[:, ::-1, ::-1]),
    ],
    ids=(
        "NHWC NHWC-3 NHWC-stated NCHW NCHW-stated HWC HWC-stated CHW-stated HW NHW NHW-1 NHW1 N1HW height-3 "
        "torch torch-NCHW reversed"
    ).split(),
)
def test_arrays_of_bytes_become_images(
    values: Any, channels: int | None, layout: str | None, expected: NDArray[np.uint8]
) -> None:
    images = bf.load_images(values, classifier_of(channels), layout=layout)
    assert images.dtype == torch.float32
    assert images.is_contiguous()
    assert images.shape == (len(expected), expected.shape[3], *expected.shape[1:3])
    assert np.array_equal(as_pixels(images), expected)


def test_read_only_arrays_are_accepted_without_a_warning(tmp_path: Path) -> None:
    with Image.open(saved(tmp_path, COLOUR[0])) as picture:
        pixels = np.asarray(picture)
    assert not pixels.flags.writeable
    assert np.array_equal(as_pixels(bf.load_images(pixels, classifier_of(3))), COLOUR[:1])


def test_scaling_tells_the_channels_where_the_shape_does_not() -> None:
    square = np.zeros((2, 3, 5, 1), np.uint8)
    assert bf.load_images(square, classifier_of(mean=(0.1, 0.2, 0.3))).shape == (2, 3, 5, 1)


@pytest.mark.parametrize("shape", [(2, 3, 5, 3), (2, 1, 5, 3), (2, 4, 5, 4)])
def test_an_array_whose_channels_cannot_be_told_needs_a_layout(shape: tuple[int, ...]) -> None:
    complaint = f"the array has shape {shape}, from which the channels (1, 3) cannot be told; say layout="
    with pytest.raises(ImageError, match=re.escape(complaint)):
        bf.load_images(np.zeros(shape, np.uint8), classifier_of())


@pytest.mark.parametrize("bounds", [(0, 1), (-0.5, 0.5), (0, 255), (-1, 1), (0.1, 0.7), (-2.1179, 2.64)])
def test_bytes_fill_the_bounds_exactly(bounds: tuple[float, float]) -> None:
    low, high = bounds
    values = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    scaled = bf.load_images(values, classifier_of(1, bounds=bounds)).flatten()
    assert scaled[0] == torch.tensor(low)
    assert scaled[255] == torch.tensor(high)
    # three roundings of float32, each of at most half a unit in the last place of the largest value
    slack = 3 * 2**-24 * max(abs(low), abs(high), high - low)
    steps = low + (high - low) * np.arange(256) / 255
    assert np.abs(scaled.double().numpy() - steps).max() <= slack
    assert (scaled.diff() > 0).all()


def test_a_very_long_picture_is_cut_before_it_is_scaled(tmp_path: Path) -> None:
    ramp = np.repeat(np.arange(200, dtype=np.uint8), 10_001)  # scaled as a whole it would have 448 million columns
    path = saved(tmp_path, np.tile(ramp[None, :, None], (1, 1, 3)))
    images = bf.load_images(path, classifier_of(3, size=224, resize="shorter-side-crop"))
    assert images.shape == (1, 3, 224, 224)
    assert images.sub(99.5 / 255).abs().max() <= 1 / 255  # the values in the middle


def test_cutting_first_gives_nearly_the_same_picture() -> None:
    rng = np.random.default_rng(4)
    long = rng.integers(0, 256, (6, 600, 3), dtype=np.uint8)
    first = resize(long, (12, 12), "shorter-side-crop")  # 100 times the wanted pixels
    scaled = Image.fromarray(long).resize((1200, 12), Image.Resampling.BILINEAR)
    whole = np.asarray(scaled.crop((594, 0, 606, 12)), np.int16)
    inner = np.abs(first.astype(np.int16) - whole)[:, 2:-2]  # at the edges the cut picture has no neighbours
    assert inner.max() <= 1


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", [(5, 7), None])
def test_files_of_the_right_size_are_never_resampled(tmp_path: Path, rule: str, size: tuple[int, int] | None) -> None:
    images = bf.load_images(saved(tmp_path, COLOUR[0]), classifier_of(3, size=size, resize=rule))
    assert torch.equal(images, bf.load_images(COLOUR[:1], classifier_of(3)))
    assert np.array_equal(as_pixels(images), COLOUR[:1])


def test_several_files_keep_their_order(tmp_path: Path) -> None:
    paths = [str(saved(tmp_path, COLOUR[place], f"{place}.png")) for place in (0, 1)]
    assert np.array_equal(as_pixels(bf.load_images(paths[::-1], classifier_of(3))), COLOUR[::-1])
    assert np.array_equal(as_pixels(bf.load_images(tuple(paths), classifier_of())), COLOUR)


def test_files_for_a_grey_classifier_become_grey_by_luma(tmp_path: Path) -> None:
    images = bf.load_images(
        [saved(tmp_path, COLOUR[0]), saved(tmp_path, GREY[1], "grey.png")], classifier_of(1, size=(5, 7))
    )
    assert np.array_equal(as_pixels(images)[0, ..., 0], np.asarray(Image.fromarray(COLOUR[0]).convert("L")))
    assert np.array_equal(as_pixels(images)[1, ..., 0], GREY[1])


def test_one_mean_for_all_channels_does_not_make_files_grey(tmp_path: Path) -> None:
    assert bf.load_images(saved(tmp_path, COLOUR[0]), classifier_of(mean=(0.5,))).shape == (1, 3, 5, 7)


def test_exact_refuses_another_size_by_the_files_name(tmp_path: Path) -> None:
    path = saved(tmp_path, COLOUR[0])
    complaint = f"{path}: the image is 5×7, not 7×5; resize it"
    with pytest.raises(ImageError, match=re.escape(complaint)):
        bf.load_images(path, classifier_of(3, size=(7, 5)))


LARGE = np.random.default_rng(2).integers(0, 256, (30, 44, 3), dtype=np.uint8)


def test_stretch_scales_both_sides(tmp_path: Path) -> None:
    images = bf.load_images(saved(tmp_path, LARGE), classifier_of(3, size=(20, 16), resize="stretch"))
    expected = Image.fromarray(LARGE).resize((16, 20), Image.Resampling.BILINEAR)
    assert np.array_equal(as_pixels(images)[0], np.asarray(expected))


@pytest.mark.parametrize(
    ("size", "scaled", "corner"),
    [
        ((15, 15), (22, 15), (3, 0)),  # landscape: width 44 · 15/30, and (22 − 15)//2 cut on the left
        ((20, 10), (29, 20), (9, 0)),  # width 44 · 20/30
        ((10, 40), (40, 27), (0, 8)),  # the wanted shape is wider: height 30 · 40/44
        ((60, 60), (88, 60), (14, 0)),  # enlarged
    ],
)
def test_shorter_side_crop_scales_to_cover_and_cuts_the_centre(
    tmp_path: Path, size: tuple[int, int], scaled: tuple[int, int], corner: tuple[int, int]
) -> None:
    images = bf.load_images(saved(tmp_path, LARGE), classifier_of(3, size=size, resize="shorter-side-crop"))
    left, top = corner
    expected = Image.fromarray(LARGE).resize(scaled, Image.Resampling.BILINEAR)
    expected = expected.crop((left, top, left + size[1], top + size[0]))
    assert np.array_equal(as_pixels(images)[0], np.asarray(expected))


@pytest.mark.parametrize("rule", RULES[1:])
def test_grey_files_are_resized_too(tmp_path: Path, rule: str) -> None:
    images = bf.load_images(saved(tmp_path, LARGE[:, :30, 0]), classifier_of(1, size=12, resize=rule))
    expected = Image.fromarray(LARGE[:, :30, 0]).resize((12, 12), Image.Resampling.BILINEAR)
    assert np.array_equal(as_pixels(images)[0, ..., 0], np.asarray(expected))


def test_files_of_different_sizes_need_a_size(tmp_path: Path) -> None:
    paths = [saved(tmp_path, COLOUR[0]), saved(tmp_path, LARGE, "large.png")]
    with pytest.raises(ImageError, match=re.escape("different sizes, [(5, 7), (30, 44)]; set size=")):
        bf.load_images(paths, classifier_of(3))


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (np.zeros((2, 5, 7, 3)), "the array is float64; it must be uint8"),
        (torch.zeros(2, 3, 5, 7), "the array is torch.float32; it must be uint8"),
        (np.zeros((2, 5, 7, 3), np.int64), "the array is int64"),
        (np.zeros((2, 5, 7, 3), np.uint16), "the array is uint16"),
        (np.zeros((2, 5, 7, 3), object), "the array is object"),
        (np.zeros(3, np.uint8), "the array has shape (3,); it must have two to four dimensions"),
        (np.zeros((1, 1, 5, 7, 3), np.uint8), "the array has shape (1, 1, 5, 7, 3)"),
        (np.zeros((0, 5, 7, 3), np.uint8), "images have shape (0, 3, 5, 7)"),
        (np.zeros((2, 5, 8, 3), np.uint8), "images have size (5, 8); this classifier takes (5, 7)"),
        (GREY, "images have channels 1; this classifier takes 3"),
        ([], "there are no image files in the list"),
        ([COLOUR[0]], "the source holds a ndarray; it must be paths of image files, or one uint8 array"),
        (Image.fromarray(COLOUR[0]), "the source holds a Image"),
        (None, "the source holds a NoneType"),
        ("missing.png", "missing.png: it cannot be opened"),
    ],
)
def test_a_source_that_is_no_picture_is_refused_with_the_reason(source: Any, complaint: str) -> None:
    with pytest.raises(ImageError, match=re.escape(complaint)):
        bf.load_images(source, classifier_of(3, size=(5, 7)))


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(OptionError, match="layout is 'NHCW'; allowed: NHWC, NCHW"):
        bf.load_images(COLOUR, classifier_of(3), layout="NHCW")


def test_images_from_files_can_be_observed(tmp_path: Path) -> None:
    classifier = bf.Classifier(plain(), bounds=(-0.5, 0.5), size=16, resize="stretch")
    assert bf.features(classifier, bf.load_images(saved(tmp_path, LARGE), classifier)).shape == (1, 96)


def test_pixels_survive_a_round_trip() -> None:
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    for bounds in ((0.0, 1.0), (-0.5, 0.5), (0.0, 255.0), (-1e-3, 7.0)):
        classifier = bf.Classifier(torch.nn.Flatten(), bounds=bounds)
        images = from_pixels(pixels, classifier)
        assert images.dtype == torch.float32
        assert (float(images.min()), float(images.max())) == pytest.approx(bounds)
        assert torch.equal(to_pixels(images, classifier), pixels)
        nearby = images + 0.4 / 255 * (bounds[1] - bounds[0])
        assert torch.equal(to_pixels(nearby, classifier), pixels)


def test_the_content_of_a_file_is_read_as_the_file_is(tmp_path: Path) -> None:
    path = saved(tmp_path, COLOUR[0])
    classifier = classifier_of(3)
    assert torch.equal(bf.load_images(path.read_bytes(), classifier), bf.load_images(path, classifier))
    with pytest.raises(ImageError, match=r"^the image: it is not an image"):
        bf.load_images(b"no image", classifier)


@pytest.mark.parametrize("pixels", [COLOUR, COLOUR[..., :1]])
def test_an_encoded_image_comes_back_as_it_was(pixels: NDArray[np.uint8]) -> None:
    classifier = classifier_of(pixels.shape[3], bounds=(-1.0, 1.0))
    images = bf.load_images(pixels, classifier)
    assert torch.equal(bf.load_images(bf.encode_png(images[0], classifier), classifier)[0], images[0])


@pytest.fixture(name="classed")
def folder_of_classes(tmp_path: Path) -> Path:
    """Twelve images of two classes."""
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for place in range(6):
            saved(tmp_path / label, COLOUR[place % 2], f"{place}.png")
    return tmp_path


def test_labelled_images_are_read_in_the_classifiers_format(classed: Path) -> None:
    classifier = classifier_of(1, size=4, resize="stretch", classes=("dog", "cat"))
    images = bf.read_labelled(classifier, str(classed))
    assert images.images.shape == (12, 1, 4, 4)
    assert {name.split("/")[0]: label for name, label in zip(images.ids, images.labels.tolist(), strict=True)} == {
        "dog": 0,
        "cat": 1,
    }
    assert classifier.open_source(str(classed), own_classes=False).classes == ("cat", "dog")


def test_a_limit_takes_each_class_with_its_share_and_a_seed_chooses(classed: Path) -> None:
    classifier = classifier_of(3)
    few = bf.read_labelled(classifier, str(classed), 4)
    assert sorted(few.labels.tolist()) == [0, 0, 1, 1]
    assert bf.read_labelled(classifier, str(classed), 6).ids[:4] == few.ids
    assert bf.read_labelled(classifier, str(classed), 4, seed=1).ids != few.ids
    with pytest.raises(OptionError, match="limit is 0"):
        bf.read_labelled(classifier, str(classed), 0)


def test_images_that_cannot_be_read_are_listed_or_end_the_reading(classed: Path) -> None:
    (classed / "dog" / "broken.png").write_bytes(b"no image")
    classifier = classifier_of(3, size=(5, 7))
    unreadable: list[bf.UnreadableImage] = []
    assert len(bf.read_labelled(classifier, str(classed), unreadable=unreadable)) == 12
    assert [image.file for image in unreadable] == ["dog/broken.png"]
    with pytest.raises(ImageError, match=r"broken\.png"):
        bf.read_labelled(classifier, str(classed))
