"""The images that a guard is made from, in the forms in which people have them: arrays, files, data sets, loaders."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from benfourier.data.image_files import picture_pixels
from benfourier.data.images import LabelledImages
from benfourier.data.splits import stratified_order
from benfourier.errors import ImageError, InputError, OptionError
from benfourier.models.classifier import Classifier
from benfourier.models.images import load_images, read_labelled

MEMORY = 2**30  # bytes that the images may take as float32
Images = Tensor | NDArray[Any] | LabelledImages | str | PathLike[str] | Iterable[Any]


def classifier_and_images(
    model: nn.Module | Classifier, images: Images, labels: Any, options: Mapping[str, Any], *, most: int, seed: int
) -> tuple[Classifier, LabelledImages]:
    """Returns the classifier, with the format of its images, and at most so many of them, in a seeded order.

    Args:
        model: a module, or a classifier, which needs no options.
        images: float images (N, C, H, W) within the bounds; uint8 images with channels first or last; a folder or file
            that `open_source` names; a Dataset or DataLoader of pairs of image and label; or LabelledImages.
        labels: classes of images that come without.
        options: of Classifier, for a module.
        most: images.
        seed: of the order.
    """
    if isinstance(model, Classifier) and options:
        first = next(iter(options))
        raise OptionError(f"{first} is given beside a Classifier, which says so itself; leave it out", first)
    if isinstance(images, str | PathLike):
        if labels is not None:
            raise InputError("labels are given, and files have those of their folders or tables; leave labels out")
        return _from_files(model, str(images), options, most, seed)
    taker = model if isinstance(model, Classifier) else Classifier(model, **options)
    pixels, classes = _arrays(images, labels, most, seed, taker.picture_channels)
    count = min(len(pixels), most, max(1, MEMORY // (4 * int(np.prod(pixels.shape[1:])))))
    order = stratified_order([str(row) for row in range(len(pixels))], classes.numpy(), seed=seed)[:count]
    rows = torch.from_numpy(order)
    floats, classifier = _floats(model, pixels[rows], options)
    return classifier, LabelledImages(floats, classes[rows], tuple(map(str, order.tolist())))


def _from_files(
    model: nn.Module | Classifier, data: str, options: Mapping[str, Any], most: int, seed: int
) -> tuple[Classifier, LabelledImages]:
    classifier = model if isinstance(model, Classifier) else Classifier(model, **options)
    if classifier.size is not None and classifier.channels is not None:
        height, width = classifier.size
        most = min(most, max(1, MEMORY // (4 * classifier.channels * height * width)))
    read = read_labelled(classifier, data, most, seed)
    return _with_format(classifier, read.images), read


def _with_format(classifier: Classifier, images: Tensor) -> Classifier:
    """The classifier, with the size and channels of these images if it names none."""
    names = ("module", "bounds", "mean", "std", "classes", "size", "channels", "resize")
    values = {name: getattr(classifier, name) for name in names}
    if values["size"] is not None and values["channels"] is not None:
        return classifier
    values["size"] = values["size"] or tuple(images.shape[2:])
    values["channels"] = values["channels"] or images.shape[1]
    return Classifier(**values)


def _floats(model: nn.Module | Classifier, pixels: Tensor, options: Mapping[str, Any]) -> tuple[Tensor, Classifier]:
    """Float images (N, C, H, W) within the bounds, and the classifier that takes them."""
    if isinstance(model, Classifier):
        classifier = model
    else:
        low, high = float(pixels.min()), float(pixels.max())
        if math.isnan(low):
            raise InputError("the images hold NaN; leave such images out")
        if "bounds" not in options and pixels.is_floating_point() and not 0 <= low <= high <= 1:
            raise InputError(
                f"the images have values from {low:.4g} to {high:.4g}, from which the bounds of pixels cannot be told; "
                "pass bounds=(least, greatest), or images before their normalisation with mean= and std="
            )
        classifier = Classifier(model, **options)
    if pixels.dtype == torch.uint8:
        pixels = load_images(pixels, classifier)
    images = pixels.float()
    classifier = _with_format(classifier, images)
    classifier.check_images(images)
    return images, classifier


def _arrays(images: Any, labels: Any, most: int, seed: int, channels: int | None) -> tuple[Tensor, Tensor]:
    """Pixels, uint8 or floating, and labels (N,); pictures get that number of channels, as files do."""
    if isinstance(images, LabelledImages):
        pixels, labels = images.images, images.labels
    elif isinstance(images, Tensor | np.ndarray):
        pixels = images if isinstance(images, Tensor) else torch.from_numpy(np.array(images, order="C"))
        if labels is None:
            raise InputError("the images have no labels; pass the true class of each as labels")
    else:
        if labels is not None:
            raise InputError("labels are given beside a data set, which has its own; leave labels out")
        pixels, labels = _collect(_pairs(images, most, seed), most, channels)
    classes = torch.as_tensor(np.asarray(labels))
    if pixels.ndim != 4 or pixels.dtype not in (torch.uint8, torch.float16, torch.float32, torch.float64):
        raise ImageError(
            f"the images are {pixels.dtype} of shape {tuple(pixels.shape)}; they must be uint8 or floating with four "
            "dimensions: images, channels, height, width"
        )
    if classes.is_floating_point() or classes.dtype == torch.bool or classes.shape != (len(pixels),):
        raise InputError(
            f"labels are {classes.dtype} of shape {tuple(classes.shape)}; they must be whole numbers ({len(pixels)},)"
        )
    return pixels, classes.long()


def _pairs(images: Any, most: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Images with their labels, from a loader of batches or from the items of a data set in a seeded order."""
    if isinstance(images, torch.utils.data.DataLoader):
        for batch in images:
            pixels, labels = _pair(batch)
            yield from zip(pixels, labels, strict=True)
    elif hasattr(images, "__getitem__") and hasattr(images, "__len__"):
        order = np.random.default_rng(seed).permutation(len(images))[:most]
        yield from (_pair(images[int(row)]) for row in order)
    else:
        raise InputError(
            f"images are a {type(images).__name__}; they must be a tensor or array with labels, a folder, a Dataset or "
            "a DataLoader"
        )


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, Mapping):  # data sets of the library `datasets`
        image = next((item[key] for key in ("image", "img", "pixel_values") if key in item), None)
        label = next((item[key] for key in ("label", "labels") if key in item), None)
        if image is not None and label is not None:
            return image, label
    elif isinstance(item, Sequence) and len(item) == 2:
        return item[0], item[1]
    raise InputError(f"an item of the data set is a {type(item).__name__}; it must be a pair of image and label")


def _collect(pairs: Iterator[tuple[Any, Any]], most: int, channels: int | None) -> tuple[Tensor, list[int]]:
    """The first images of one shape as a tensor (N, C, H, W), and their labels."""
    images, labels = list[Tensor](), list[int]()
    for item, label in pairs:
        image = picture_pixels(item, channels) if isinstance(item, Image.Image) else item
        pixels = image if isinstance(image, Tensor) else torch.from_numpy(np.array(image, order="C"))
        if pixels.ndim == 2:
            pixels = pixels.unsqueeze(0)
        elif pixels.dtype == torch.uint8 and not isinstance(image, Tensor):  # files and arrays have channels last
            pixels = pixels.permute(2, 0, 1)
        images.append(pixels)
        labels.append(int(label))
        if images[-1].shape != images[0].shape:
            shapes = f"{tuple(images[0].shape)} and {tuple(pixels.shape)}"
            raise ImageError(f"images of the data set have the shapes {shapes}; resize them to one shape")
        if len(images) == most or images[0].numel() * 4 * len(images) > MEMORY:
            break
    if not images:
        raise InputError("the data set is empty; give images with their labels")
    return torch.stack(images), labels
