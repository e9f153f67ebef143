"""A picture brought to a wanted size by a named rule."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benfourier.errors import ImageError, check_choice

LONG = 64  # times the wanted pixels; pictures that would be scaled to more are cut first
RULES = ("exact", "shorter-side-crop", "stretch")


def fit(pixels: NDArray[np.uint8], wanted: tuple[int, int], rule: str) -> NDArray[np.uint8]:
    """Returns a picture (H, W, C) of the wanted height and width; one that has them is never resampled.

    Args:
        pixels: uint8 (H, W, C) with 1 or 3 channels.
        wanted: height and width.
        rule: "exact" refuses other sizes, "shorter-side-crop" scales until both sides cover the wanted ones and cuts
            the centre, "stretch" scales both sides.
    """
    check_choice("resize", rule, RULES)
    height, width, channels = pixels.shape
    if (height, width) == wanted:
        return pixels
    if rule == "exact":
        raise ImageError(
            f"the picture is {height}×{width}, {wanted[0]}×{wanted[1]} is wanted; resize it, "
            'or choose resize="shorter-side-crop" or "stretch"'
        )
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    fitted = _crop(picture, wanted) if rule == "shorter-side-crop" else _scale(picture, wanted)
    return np.asarray(fitted, np.uint8).reshape(*wanted, channels)


def _scale(picture: Image.Image, wanted: tuple[int, int]) -> Image.Image:
    return picture.resize((wanted[1], wanted[0]), Image.Resampling.BILINEAR)


def _crop(picture: Image.Image, wanted: tuple[int, int]) -> Image.Image:
    """Scaled until both sides cover the wanted size, then cut to it around the centre."""
    height, width = wanted
    factor = max(height / picture.height, width / picture.width)
    tall, wide = max(height, round(picture.height * factor)), max(width, round(picture.width * factor))
    top, left = (tall - height) // 2, (wide - width) // 2
    if tall * wide <= LONG * height * width:
        return _scale(picture, (tall, wide)).crop((left, top, left + width, top + height))
    down, across = picture.height / tall, picture.width / wide
    box = (
        left * across,
        top * down,
        min((left + width) * across, picture.width),
        min((top + height) * down, picture.height),
    )
    return picture.resize((width, height), Image.Resampling.BILINEAR, box=box)
