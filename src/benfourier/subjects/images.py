"""8-bit images, from arrays or files, as tensors that a subject takes."""

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benfourier.data.files import read_image
from benfourier.data.resize import fit
from benfourier.errors import ImageError, check_choice
from benfourier.subjects.subject import Subject

Path = str | PathLike[str]
LAYOUTS = ("NHWC", "NCHW")


def images(
    source: Path | Sequence[Path] | NDArray[np.uint8] | Tensor, subject: Subject, *, layout: str | None = None
) -> Tensor:
    """Returns 8-bit images as float32 (N, C, H, W) in the subject's bounds: 0 becomes the lower, 255 the upper one.

    Args:
        source: image files, or uint8 values of shape (H, W), (N, H, W) or, as layout says, with channels.
        subject: says which channels, size and resize rule apply.
        layout: "NHWC" or "NCHW" for arrays of four dimensions (three: "NHWC" means H, W, C); by default found from
            the number of channels.
    """
    if isinstance(source, np.ndarray | Tensor):
        pixels = _pixels(_bytes(source), subject, layout)
    else:
        files = [_read(path, subject) for path in _paths(source)]
        if not files:
            raise ImageError("there are no image files in the list; give at least one")
        if len({f.shape for f in files}) > 1:
            raise ImageError(f"the files have different sizes, {sorted({f.shape[:2] for f in files})}; set size=")
        pixels = torch.from_numpy(np.stack(files)).permute(0, 3, 1, 2)
    low, high = subject.bounds
    found = (low + (high - low) * (pixels.to(torch.float32) / 255)).clamp(low, high).contiguous()
    subject.check(found)
    return found


def _paths(source: Any) -> list[Path]:
    """The paths in a source, one or many."""
    many = isinstance(source, Iterable) and not isinstance(source, str | bytes)
    items = list(source) if many else [source]
    wrong = [type(item).__name__ for item in items if not isinstance(item, str | PathLike)]
    if wrong:
        raise ImageError(f"the source holds a {wrong[0]}; it must be paths of image files, or one uint8 array")
    return items


def _bytes(values: NDArray[np.uint8] | Tensor) -> Tensor:
    """uint8 values as a tensor; arrays are copied, since tensors take neither read-only nor reversed ones."""
    if values.dtype not in (np.uint8, torch.uint8):
        raise ImageError(f"the array is {values.dtype}; it must be uint8 (float tensors need no conversion)")
    return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values, order="C"))


def _pixels(values: Tensor, subject: Subject, layout: str | None) -> Tensor:
    """uint8 values as (N, C, H, W)."""
    if layout is not None:
        check_choice("layout", layout, LAYOUTS)
    if values.ndim == 2 or (values.ndim == 3 and layout is None and values.shape[-1] not in (1, 3)):
        values = values.unsqueeze(-1)
        layout = "NHWC"
    if values.ndim == 3:
        values = values.unsqueeze(0)
    if values.ndim != 4:
        raise ImageError(f"the array has shape {tuple(values.shape)}; it must have two to four dimensions")
    if layout is None:
        layout = _guess_layout(values, subject)
    return values.permute(0, 3, 1, 2) if layout == "NHWC" else values


def _guess_layout(values: Tensor, subject: Subject) -> str:
    allowed = (subject.known_channels,) if subject.known_channels else (1, 3)
    last, second = values.shape[3] in allowed, values.shape[1] in allowed
    if last == second:
        raise ImageError(
            f"the array has shape {tuple(values.shape)}, from which the channels {allowed} cannot be told; "
            'say layout="NHWC" or layout="NCHW"'
        )
    return "NHWC" if last else "NCHW"


def _read(path: Path, subject: Subject) -> NDArray[np.uint8]:
    """One file as uint8 (H, W, C), resized as the subject says."""
    channels = subject.known_channels or 3
    pixels = read_image(path, channels)
    wanted = subject.height_width
    if wanted is None or pixels.shape[:2] == wanted:
        return pixels
    if subject.resize == "exact":
        raise ImageError(
            f"{path}: the picture is {pixels.shape[0]}×{pixels.shape[1]}, the subject takes {wanted[0]}×{wanted[1]}; "
            'resize it, or give the Subject resize="shorter-side-crop" or "stretch"'
        )
    return fit(pixels, wanted, subject.resize)
