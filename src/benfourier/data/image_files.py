"""One image file decoded or refused, and pictures brought to another size; Pillow decodes and scales."""

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.ImageFile import ImageFile
from PIL.TiffImagePlugin import TiffImageFile

from benfourier.errors import ImageError, OptionError, check_choice, check_whole
from benfourier.store.artifact import FilePath

# Decoders of plain pixels only: Pillow's EPS reader, for one, starts another program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
RESIZE_RULES = ("exact", "shorter-side-crop", "stretch")
FILTERS = {each.name.lower(): each for each in Image.Resampling}
RULE = re.compile(r"(shorter-side-crop|stretch)(?::([0-9]{1,5}))?(?::([a-z]+))?")
MAX_GROWTH = 64  # a picture scaled to more pixels than this times its final size is cut first
PIXEL_LIMIT = 2**26  # 8192×8192, 192 MiB of colour; below the limit at which Pillow itself warns

ORIENTATION = 0x0112  # the EXIF tag
WIDTH, BITS, TILE_WIDTH, TILE_LENGTH = 256, 258, 322, 323  # tags of TIFF
# Bytes per pixel that reading takes at most: the decoder's picture and its copies, or the coefficients of a progressive
# JPEG file beside them; WebP's decoder has three pictures of its own.
READING_BYTES, READING_BYTES_CMYK, READING_BYTES_WEBP = 10, 12, 16

BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
# What Pillow's decoders raise on broken files, warnings turned into errors included.
FAULTS = (ArithmeticError, EOFError, LookupError, NotImplementedError, OSError, SyntaxError, TypeError, ValueError)
OTHER_FAULTS = (UserWarning, struct.error, zlib.error)


def read_image(
    file: FilePath | bytes,  # a file of one of the FORMATS, or the content of one
    channels: int,  # 1 for grey, 3 for colour
    size: tuple[int, int] | None = None,  # height and width that it is brought to; None leaves it as it is
    rule: str = "exact",  # how: see `resize`
    *,
    name: str | None = None,  # what messages call it; by default the path, or "the image"
    pixel_limit: int = PIXEL_LIMIT,  # files whose header states more are refused before they are decoded
    memory_limit: int | None = None,  # files that take more bytes to decode are refused before; None for any
) -> NDArray[np.uint8]:
    """Returns the picture in a file, upright, as uint8 (height, width, channels).

    Palettes, CMYK and 1-bit files become plain channels, colour becomes grey by luma, an opaque alpha channel is
    dropped. Transparency, several frames and more than 8 bits per channel are refused.
    """
    if channels not in (1, 3):
        raise OptionError(f"channels is {channels!r}; allowed: 1 for grey, 3 for colour")
    check_whole("pixel_limit", pixel_limit)
    parse_rule(rule, size, "rule")
    with _open(file, name) as image:
        _check_header(image, pixel_limit, memory_limit)
        if size is not None and rule == "exact" and size != image.size:  # it may lie on its side
            _check_exact((image.height, image.width), size)  # before it is decoded
        ImageOps.exif_transpose(image, in_place=True)  # in place, here and below: a large picture is held once or twice
        picture = _opaque_picture(image, channels)
        return _pixels(picture if size is None else _resize_picture(picture, size, rule))


def read_size(path: FilePath) -> tuple[int, int]:
    """Returns height and width of the picture in a file, upright, as its header states them."""
    with _open(path) as image:
        _check_header(image, PIXEL_LIMIT)
        on_its_side = image.getexif().get(ORIENTATION) in (5, 6, 7, 8)  # the values that turn it by a quarter
        # newer Pillow versions turn TIFF files when they open them
        upright = isinstance(image, TiffImageFile) and image.width != image.tag_v2[WIDTH]
        return image.size if on_its_side and not upright else (image.height, image.width)


def count_pixels(file: FilePath | bytes, *, name: str | None = None, pixel_limit: int = PIXEL_LIMIT) -> int:
    """Returns how many pixels decoding a file makes, as its header states; nothing is decoded."""
    with _open(file, name) as image:
        return _check_header(image, pixel_limit)


@contextmanager
def _open(source: FilePath | bytes, name: str | None = None) -> Iterator[ImageFile]:
    """Yields a file whose header is an image's; whatever its decoder raises becomes an ImageError with its name."""
    name = name or ("the image" if isinstance(source, bytes) else str(source))
    try:
        with (
            BytesIO(source) if isinstance(source, bytes) else Path(source).open("rb") as file,
            Image.open(file, formats=FORMATS) as image,
        ):
            yield image
    except (*FAULTS, *OTHER_FAULTS, *BOMBS) as error:
        if isinstance(error, ImageError):
            reason = str(error)
        elif isinstance(error, BOMBS):
            reason = f"its header states too many pixels to decode safely ({error}); shrink it"
        elif isinstance(error, UnidentifiedImageError):
            allowed = ", ".join(FORMATS)
            reason = f"it is not an image, or its header is broken; allowed: {allowed}; convert or save it again"
        elif isinstance(error, OSError) and error.strerror:
            reason = f"it cannot be opened ({error.strerror}); check the name and the permissions"
        else:
            reason = f"it is broken or cut short ({error}); save or download it again"
        raise ImageError(f"{name}: {reason}") from error


def _check_header(image: ImageFile, pixel_limit: int, memory_limit: int | None = None) -> int:
    """Returns the number of pixels to decode; refuses what the header shows to be too large, moving or too deep."""
    width, height = image.size
    if isinstance(image, TiffImageFile):  # a tile is decoded whole, however small the picture in it
        width, height = max(width, image.tag_v2.get(TILE_WIDTH, 0)), max(height, image.tag_v2.get(TILE_LENGTH, 0))
    if width * height > pixel_limit:
        problem = f"its header states {width}×{height} pixels; at most {pixel_limit} are allowed"
        raise ImageError(f"{problem}; shrink it, or raise pixel_limit if you trust it")
    others = READING_BYTES_CMYK if image.mode == "CMYK" else READING_BYTES
    needed = width * height * (READING_BYTES_WEBP if image.format == "WEBP" else others)
    if memory_limit is not None and needed > memory_limit:
        problem = f"its {width}×{height} pixels may take {needed} bytes to decode; at most {memory_limit} are allowed"
        raise ImageError(f"{problem}; shrink it, or raise the limit on memory")
    if _has_frames(image):
        raise ImageError("it holds several frames; one is allowed; save the frame you mean as a file of its own")
    if _is_deep(image):
        problem = f"its channels are deeper than 8 bits (mode {image.mode}); 8 bits are allowed"
        raise ImageError(f"{problem}; scale it to 8 bits first, since only you know its range")
    return width * height


def _has_frames(image: ImageFile) -> bool:
    """Whether there is a second frame; those of a TIFF are not counted, which would take forever in some."""
    if not isinstance(image, TiffImageFile):
        return bool(getattr(image, "is_animated", False))
    try:
        image.seek(1)
    except EOFError:
        return False
    finally:
        image.seek(0)
    return True


def _is_deep(image: ImageFile) -> bool:
    """Whether a channel has more than 8 bits; in colour files only tags or the decoder's arguments tell."""
    if image.mode.startswith(("I", "F")):
        return True
    if isinstance(image, TiffImageFile) and max(image.tag_v2.get(BITS, (1,))) > 8:
        return True
    for codec, _, _, args in image.tile:
        raw, *rest = args if isinstance(args, tuple) else (args,)
        if str(raw).endswith((";16B", ";16L", ";16N")) or (codec.startswith("ppm") and rest and rest[0] > 255):
            return True
    return False


def picture_pixels(image: Image.Image, channels: int | None) -> NDArray[np.uint8]:
    """Returns a picture's pixels (height, width, channels); refuses one through which a background would show.

    Colour becomes grey by luma for one channel; None takes grey pictures as grey and others as colour.
    """
    return _pixels(_opaque_picture(image, channels or (1 if image.mode in ("1", "L") else 3)))


def _opaque_picture(image: Image.Image, channels: int) -> Image.Image:
    """The picture as "L" for one channel and "RGB" for three; it must be opaque."""
    if image.has_transparency_data:
        image = image if image.mode == "LA" else _converted(image, "RGBA")
        clear = sum(image.getchannel("A").histogram()[:255])
        if clear:
            problem = f"{clear} of its {image.width * image.height} pixels are transparent"
            raise ImageError(f"{problem}; only opaque images are allowed; flatten it onto a background first")
    if image.mode not in ("1", "L"):
        image = _converted(image, "RGB")
    return _converted(image, "RGB" if channels == 3 else "L")


def _converted(image: Image.Image, mode: str) -> Image.Image:
    """The picture in a mode; no copy if it has that mode."""
    image.load()
    return image if image.mode == mode else image.convert(mode)


def _pixels(picture: Image.Image) -> NDArray[np.uint8]:
    """The values of a picture "L" or "RGB", (height, width, channels)."""
    return np.array(picture).reshape(picture.height, picture.width, -1)


def check_size(size: Any) -> tuple[int, int] | None:
    """Returns height and width, for which one number may stand; None stays."""
    if size is None:
        return None
    sides = size if isinstance(size, tuple | list) else (size, size)
    if len(sides) != 2:
        raise OptionError(f"size is {size!r}; it must be one whole number, or height and width", "size")
    return check_whole("size", sides[0]), check_whole("size", sides[1])


@dataclass(frozen=True)
class ResizeRule:
    """How a picture is brought to another size."""

    way: str  # one of RESIZE_RULES
    side: int | None = None  # what the shorter side, or with "stretch" both, is scaled to before the centre is cut out
    sampling: str = "bilinear"  # one of FILTERS


def parse_rule(text: object, size: tuple[int, int] | None = None, name: str = "resize") -> ResizeRule:
    """Returns the rule in a text such as "stretch" or "shorter-side-crop:256:bicubic", or raises OptionError.

    A side must cover the size that is cut out.
    """
    if ":" not in str(text):
        check_choice(name, text, RESIZE_RULES)
        return ResizeRule(str(text))
    match = RULE.fullmatch(str(text))
    if match is None or (match[3] or "bilinear") not in FILTERS:
        form = f"a side and a filter ({', '.join(FILTERS)}) may follow, as in shorter-side-crop:256:bicubic"
        raise OptionError(f"{name} is {text!r}; allowed: {', '.join(RESIZE_RULES)}; after the last two {form}", name)
    side = None if match[2] is None else check_whole(name, int(match[2]))
    if side is not None and size is not None and side < max(size):
        problem = f"{name} is {text!r}, which scales to {side} pixels before {size[0]}×{size[1]} are cut out"
        raise OptionError(f"{problem}; the side must be at least {max(size)}", name)
    return ResizeRule(match[1], side, match[3] or "bilinear")


def resize(pixels: NDArray[np.uint8], size: tuple[int, int], rule: str) -> NDArray[np.uint8]:
    """Returns a picture (H, W, C) with that height and width; one that has the size is never resampled.

    The rule "exact" refuses other sizes, "shorter-side-crop" scales until both sides cover the size and cuts the
    centre, "stretch" scales both sides. After ":" may follow the side to scale to before the centre is cut out, and
    after another the filter, by default "bilinear": see `parse_rule`.
    """
    if pixels.shape[:2] == size:
        return pixels
    return _pixels(_resize_picture(Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels), size, rule))


def _resize_picture(picture: Image.Image, size: tuple[int, int], rule: str) -> Image.Image:
    """The picture with that height and width."""
    height, width = picture.height, picture.width
    if (height, width) == size:
        return picture
    form = parse_rule(rule, size)
    if form.way == "exact":
        _check_exact((height, width), size)
    return _crop(picture, size, _size_before_cut(height, width, size, form), FILTERS[form.sampling])


def _check_exact(actual: tuple[int, int], size: tuple[int, int]) -> None:
    """Refuses another height and width than the right one."""
    if actual != size:
        problem = f"the image is {actual[0]}×{actual[1]}, not {size[0]}×{size[1]}"
        raise ImageError(f'{problem}; resize it, or choose resize="shorter-side-crop" or "stretch"')


def _size_before_cut(height: int, width: int, size: tuple[int, int], rule: ResizeRule) -> tuple[int, int]:
    """Height and width that a picture is scaled to before its centre is cut out."""
    if rule.way == "stretch":
        return size if rule.side is None else (rule.side, rule.side)
    if rule.side is not None:  # the longer side is rounded down, as in torchvision and transformers
        shorter = min(height, width)
        return rule.side * height // shorter, rule.side * width // shorter
    factor = max(size[0] / height, size[1] / width)
    return max(size[0], round(height * factor)), max(size[1], round(width * factor))


def _crop(
    picture: Image.Image, size: tuple[int, int], before_cut: tuple[int, int], sampling: Image.Resampling
) -> Image.Image:
    """Scaled to one size, then cut to the other around the centre."""
    (height, width), (tall, wide) = size, before_cut
    top, left = (tall - height) // 2, (wide - width) // 2
    if tall * wide <= MAX_GROWTH * height * width:
        return picture.resize((wide, tall), sampling).crop((left, top, left + width, top + height))
    down, across = picture.height / tall, picture.width / wide
    right, bottom = min((left + width) * across, picture.width), min((top + height) * down, picture.height)
    return picture.resize((width, height), sampling, box=(left * across, top * down, right, bottom))
