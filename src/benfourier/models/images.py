"""8-bit images, from arrays, files or sources, as tensors that a classifier takes."""

from collections.abc import Iterable, Sequence
from io import BytesIO
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from benfourier.data.image_files import read_image
from benfourier.data.images import LabelledImages, UnreadableImage, read
from benfourier.data.sources import Source
from benfourier.data.splits import stratified_order
from benfourier.errors import ImageError, check_choice, check_whole
from benfourier.models.classifier import Classifier
from benfourier.store.artifact import FilePath

LAYOUTS = ("NHWC", "NCHW")
LEVELS = 255  # greatest 8-bit value


def load_images(
    source: FilePath | bytes | Sequence[FilePath] | NDArray[np.uint8] | Tensor,
    classifier: Classifier,
    *,
    layout: str | None = None,
) -> Tensor:
    """Returns 8-bit images as float32 (N, C, H, W) in the classifier's bounds: 0 becomes the lower, 255 the upper one.

    Args:
        source: image files, the content of one, or uint8 values of shape (H, W), (N, H, W) or, as layout says, with
            channels.
        classifier: says which channels, size and resize rule apply.
        layout: "NHWC" or "NCHW" for arrays of four dimensions (three: "NHWC" means H, W, C); by default taken from
            the number of channels.
    """
    if isinstance(source, np.ndarray | Tensor):
        pixels = _pixels(source, classifier, layout)
    else:
        channels, size, rule = classifier.picture_channels or 3, classifier.size, classifier.resize
        files = [read_image(file, channels, size, rule) for file in _files(source)]
        if not files:
            raise ImageError("there are no image files in the list; give at least one")
        if len({f.shape for f in files}) > 1:
            raise ImageError(f"the files have different sizes, {sorted({f.shape[:2] for f in files})}; set size=")
        pixels = torch.from_numpy(np.stack(files)).permute(0, 3, 1, 2)
    images = from_pixels(pixels, classifier).contiguous()
    classifier.check_images(images)
    return images


def read_labelled(
    classifier: Classifier,
    data: str | Source,
    limit: int | None = None,
    seed: int = 0,
    unreadable: list[UnreadableImage] | None = None,
    *,
    show_progress: bool | None = None,
) -> LabelledImages:
    """Returns images of a source with their classes, as the classifier takes them.

    Args:
        classifier: says which channels, size, resize rule and class names apply.
        data: the source, or what names it: "mnist-5k", a file or a folder.
        limit: how many images at most, each class with its share; None for all.
        seed: another seed chooses other images.
        unreadable: a list to which images that cannot be read are added; None raises ImageError at the first one.
        show_progress: True or False to force the bar; None draws it on a terminal.
    """
    source = classifier.open_source(data) if isinstance(data, str) else data
    rows = stratified_order(source.ids, source.labels, seed=seed)
    if limit is not None:
        rows = rows[: check_whole("limit", limit)]
    pixels = read(source, rows, unreadable, show=show_progress)
    return LabelledImages(load_images(pixels.images, classifier, layout="NCHW"), pixels.labels, pixels.ids)


def from_pixels(pixels: Tensor, classifier: Classifier, dtype: torch.dtype = torch.float32) -> Tensor:
    """Returns 8-bit values of any shape as floating ones in the classifier's bounds."""
    low, high = classifier.bounds
    return (low + (high - low) * (pixels.to(dtype) / LEVELS)).clamp(low, high)


def to_pixels(images: Tensor, classifier: Classifier) -> Tensor:
    """Returns images in the classifier's bounds as the nearest 8-bit values, uint8 of the same shape."""
    low, high = classifier.bounds
    return (LEVELS * (images.double() - low) / (high - low)).round().clamp(0, LEVELS).to(torch.uint8)


def encode_png(image: Tensor, classifier: Classifier) -> bytes:
    """Returns an image (C, H, W) in the classifier's bounds as the content of a PNG file, rounded to 8 bits."""
    pixels = to_pixels(image, classifier).permute(1, 2, 0).cpu().numpy()
    content = BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(content, "PNG")
    return content.getvalue()


def _files(source: Any) -> list[FilePath | bytes]:
    """The files in a source, one or many; or the content of one."""
    if isinstance(source, bytes):
        return [source]
    items = list(source) if isinstance(source, Iterable) and not isinstance(source, str) else [source]
    wrong = [type(item).__name__ for item in items if not isinstance(item, str | PathLike)]
    if wrong:
        raise ImageError(f"the source holds a {wrong[0]}; it must be paths of image files, or one uint8 array")
    return items


def _pixels(values: NDArray[np.uint8] | Tensor, classifier: Classifier, layout: str | None) -> Tensor:
    """uint8 values as (N, C, H, W)."""
    if values.dtype not in (np.uint8, torch.uint8):
        raise ImageError(f"the array is {values.dtype}; it must be uint8 (float tensors need no conversion)")
    if layout is not None:
        check_choice("layout", layout, LAYOUTS)
    if not isinstance(values, Tensor):  # a copy, since tensors take neither read-only nor reversed arrays
        values = torch.from_numpy(np.array(values, order="C"))
    if values.ndim == 2 or (values.ndim == 3 and layout is None and values.shape[-1] not in (1, 3)):
        values, layout = values.unsqueeze(-1), "NHWC"
    if values.ndim == 3:
        values = values.unsqueeze(0)
    if values.ndim != 4:
        raise ImageError(f"the array has shape {tuple(values.shape)}; it must have two to four dimensions")
    if layout is None:
        allowed = (classifier.channels,) if classifier.channels else (1, 3)
        last, second = values.shape[3] in allowed, values.shape[1] in allowed
        if not last and not second and classifier.channels:
            problem = f"the array has shape {tuple(values.shape)}; this classifier takes channels {classifier.channels}"
            raise ImageError(f"{problem}: convert it (image files are converted when they are read)")
        if last == second:
            problem = f"the array has shape {tuple(values.shape)}, from which the channels {allowed} cannot be told"
            raise ImageError(f'{problem}; say layout="NHWC" or layout="NCHW"')
        layout = "NHWC" if last else "NCHW"
    return values.permute(0, 3, 1, 2) if layout == "NHWC" else values
