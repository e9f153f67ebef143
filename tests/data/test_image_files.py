import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from benfourier.data.image_files import count_pixels, read_image, read_size
from benfourier.errors import ImageError, OptionError

HEIGHT, WIDTH = 11, 17
COLOUR = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
GREY = COLOUR[:, :, 0]
ORIENTATION = 0x0112


def saved(folder: Path, name: str, image: Image.Image, **options: Any) -> Path:
    path = folder / name
    image.save(path, **options)
    return path


def encoded(image_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(COLOUR).save(buffer, image_format, **options)
    return buffer.getvalue()


def with_alpha(*, clear: int) -> Image.Image:
    """The colour image with an alpha channel, opaque but for a few pixels."""
    alpha = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)
    alpha.reshape(-1)[:clear] = 254
    return Image.fromarray(np.concatenate([COLOUR, alpha], axis=2))


def png(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    """A PNG file written by hand; its header may be wrong."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    packed = (struct.pack(">I", len(body)) + kind + body for kind, body in chunks)
    sums = (struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk + crc for chunk, crc in zip(packed, sums, strict=True))


def tiff(entries: dict[int, tuple[int, list[int]]], pixels: bytes) -> bytes:
    """A TIFF file written by hand, its tags as (type, values): 3 for 16 bits, 4 for 32."""
    begin = 8 + 2 + 12 * (len(entries) + 1) + 4
    extra, tags = b"", b""
    for tag, (kind, values) in sorted({**entries, 273: (4, [begin + 64])}.items()):
        body = b"".join(struct.pack("<H" if kind == 3 else "<I", value) for value in values)
        if len(body) > 4:
            body, extra = struct.pack("<I", begin + len(extra)), extra + body
        tags += struct.pack("<HHI", tag, kind, len(values)) + body.ljust(4, b"\0")
    head = struct.pack("<2sHIH", b"II", 42, 8, len(entries) + 1)
    return head + tags + bytes(4) + extra.ljust(64, b"\0") + pixels


def refused(path: Path, **options: Any) -> str:
    """The message with which a file is refused, checked to begin with its name."""
    with pytest.raises(ImageError) as caught:
        read_image(path, 3, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.png", {}),
        ("a.bmp", {}),
        ("a.ppm", {}),
        ("a.tiff", {}),
        ("a.tiff", {"compression": "tiff_lzw"}),
        ("a.webp", {"lossless": True}),
    ],
)
def test_lossless_colour_files_give_their_own_pixels(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    pixels = read_image(saved(tmp_path, name, Image.fromarray(COLOUR), **options), 3)
    assert pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels, COLOUR)


def test_jpeg_gives_nearly_its_pixels(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 32 * 32 * 3).reshape(32, 32, 3).astype(np.uint8)
    pixels = read_image(saved(tmp_path, "a.jpg", Image.fromarray(ramp), quality=95), 3)
    assert np.abs(pixels.astype(int) - ramp).mean() < 4  # a smooth ramp at this quality


def test_pixels_may_be_written_to_and_the_path_may_be_text(tmp_path: Path) -> None:
    pixels = read_image(str(saved(tmp_path, "a.png", Image.fromarray(COLOUR))), 3)
    pixels[0, 0, 0] = 7
    assert pixels[0, 0, 0] == 7


def test_grey_file_gives_one_channel_or_three_equal_ones(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.png", Image.fromarray(GREY))
    np.testing.assert_array_equal(read_image(path, 1), GREY[:, :, None])
    np.testing.assert_array_equal(read_image(path, 3), np.repeat(GREY[:, :, None], 3, axis=2))


def test_colour_becomes_grey_by_luma(tmp_path: Path) -> None:
    pixels = read_image(saved(tmp_path, "a.png", Image.fromarray(COLOUR)), 1)
    # Rounding is half a level; the weights in the decoder have 16 bits, which is far less.
    assert np.abs(pixels[:, :, 0] - COLOUR @ np.array([0.299, 0.587, 0.114])).max() < 0.51


def test_one_bit_file_gives_black_and_white(tmp_path: Path) -> None:
    bits = GREY > 127
    pixels = read_image(saved(tmp_path, "a.png", Image.fromarray(bits)), 1)
    np.testing.assert_array_equal(pixels[:, :, 0], np.where(bits, 255, 0))


@pytest.mark.parametrize("name", ["a.png", "a.gif", "a.bmp"])
def test_palette_file_gives_its_colours(tmp_path: Path, name: str) -> None:
    image = Image.fromarray(COLOUR).quantize(256)
    path = saved(tmp_path, name, image)
    plain = image.convert("RGB")
    np.testing.assert_array_equal(read_image(path, 3), np.asarray(plain))
    np.testing.assert_array_equal(read_image(path, 1)[:, :, 0], np.asarray(plain.convert("L")))


@pytest.mark.parametrize("channels", [1, 3])
def test_cmyk_file_gives_its_colours(tmp_path: Path, channels: int) -> None:
    path = saved(tmp_path, "a.tiff", Image.fromarray(COLOUR).convert("CMYK"))
    plain = saved(tmp_path, "b.png", Image.fromarray(COLOUR).convert("CMYK").convert("RGB"))
    np.testing.assert_array_equal(read_image(path, channels), read_image(plain, channels))


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [(1, COLOUR), (3, np.rot90(COLOUR, 2)), (6, np.rot90(COLOUR, -1)), (8, np.rot90(COLOUR)), (2, COLOUR[:, ::-1])],
)
def test_image_is_turned_upright(tmp_path: Path, orientation: int, upright: NDArray[np.uint8]) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    path = saved(tmp_path, "a.png", Image.fromarray(COLOUR), exif=exif)
    np.testing.assert_array_equal(read_image(path, 3), upright)


@pytest.mark.parametrize("name", ["a.png", "a.tiff", "a.jpeg"])
@pytest.mark.parametrize("orientation", [1, 3, 5, 6, 7, 8])
def test_the_size_in_the_header_is_that_of_the_picture_upright(tmp_path: Path, name: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    path = saved(tmp_path, name, Image.fromarray(COLOUR), exif=exif)
    assert read_size(path) == read_image(path, 3).shape[:2]


def test_opaque_alpha_is_dropped(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.png", with_alpha(clear=0))
    np.testing.assert_array_equal(read_image(path, 3), COLOUR)
    grey = saved(tmp_path, "b.png", Image.merge("LA", [Image.fromarray(GREY), Image.new("L", (WIDTH, HEIGHT), 255)]))
    np.testing.assert_array_equal(read_image(grey, 1)[:, :, 0], GREY)


def test_transparency_is_refused_with_the_count_of_its_pixels(tmp_path: Path) -> None:
    message = refused(saved(tmp_path, "a.png", with_alpha(clear=5)))
    assert f"5 of its {HEIGHT * WIDTH} pixels are transparent" in message
    assert "flatten it" in message


def test_transparent_palette_entry_is_refused_only_where_it_shows(tmp_path: Path) -> None:
    image = Image.fromarray(GREY // 2).convert("P")
    shown = saved(tmp_path, "a.png", image, transparency=int(GREY[0, 0] // 2))
    hidden = saved(tmp_path, "b.png", image, transparency=200)
    assert "transparent" in refused(shown)
    assert read_image(hidden, 3).shape == (HEIGHT, WIDTH, 3)


@pytest.mark.parametrize("image", [Image.fromarray(GREY), Image.fromarray(COLOUR)], ids=["grey", "colour"])
def test_transparent_colour_key_is_refused(tmp_path: Path, image: Image.Image) -> None:
    path = saved(tmp_path, "a.png", image, transparency=image.getpixel((0, 0)))
    assert "transparent" in refused(path)


@pytest.mark.parametrize("name", ["a.gif", "a.png", "a.tiff", "a.webp"])
def test_file_of_several_frames_is_refused(tmp_path: Path, name: str) -> None:
    frames = [Image.fromarray(COLOUR), Image.fromarray(255 - COLOUR)]
    message = refused(saved(tmp_path, name, frames[0], save_all=True, append_images=frames[1:]))
    assert "it holds several frames" in message


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("a.png", np.uint16), ("a.tiff", np.uint16), ("a.tiff", np.int32), ("a.tiff", np.float32), ("a.pgm", np.uint16)],
)
def test_deep_grey_file_is_refused(tmp_path: Path, name: str, dtype: type) -> None:
    message = refused(saved(tmp_path, name, Image.fromarray(GREY.astype(dtype))))
    assert "deeper than 8 bits" in message
    assert "scale it to 8 bits first" in message


@pytest.mark.parametrize(("colour", "samples"), [(2, 3), (4, 2), (6, 4)], ids=["colour", "grey-alpha", "colour-alpha"])
def test_deep_colour_png_is_refused(tmp_path: Path, colour: int, samples: int) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(1, 1, 16, colour, bytes(1 + 2 * samples)))
    assert "deeper than 8 bits" in refused(path)


@pytest.mark.parametrize("header", [b"P6 1 1 65535\n", b"P6 1 1 1023\n"])
def test_deep_colour_ppm_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.ppm"
    path.write_bytes(header + bytes(6))
    assert "deeper than 8 bits" in refused(path)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("planes", [1, 2], ids=["chunky", "planar"])
def test_deep_colour_tiff_is_refused(tmp_path: Path, bits: int, planes: int) -> None:
    path = tmp_path / "a.tiff"
    sides = {256: (3, [1]), 257: (3, [1]), 278: (3, [1])}
    colour = {258: (3, [bits] * 3), 259: (3, [1]), 262: (3, [2]), 277: (3, [3]), 284: (3, [planes])}
    path.write_bytes(tiff({**sides, **colour, 279: (4, [3 * bits // 8])}, bytes(range(3 * bits // 8))))
    if bits == 16:
        assert "deeper than 8 bits" in refused(path)
    elif planes == 1:
        assert read_image(path, 3).tolist() == [[[0, 1, 2]]]


@pytest.mark.parametrize("content", [b"P1 2 1\n1 0\n", b"P4 2 1\n\x80"], ids=["text", "bits"])
def test_a_one_bit_map_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.pbm"
    path.write_bytes(content)
    assert read_image(path, 1)[0, :, 0].tolist() == [0, 255]


def test_shallow_ppm_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ppm"
    path.write_bytes(b"P6 1 1 15\n" + bytes([0, 15, 5]))
    assert read_image(path, 3).tolist() == [[[0, 255, 85]]]


def test_header_bomb_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png(60_000, 60_000, 8, 2, b""))
    assert "too many pixels" in refused(path)


@pytest.mark.parametrize("side", [8_193, 10_000], ids=["ours", "warned-of"])
def test_smaller_bombs_are_refused_too(tmp_path: Path, side: int) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png(side, side, 8, 2, b""))
    assert "its header states" in refused(path)


def test_pixel_limit_is_the_largest_size_allowed(tmp_path: Path) -> None:
    path = saved(tmp_path, "a.png", Image.fromarray(COLOUR))
    assert read_image(path, 3, pixel_limit=HEIGHT * WIDTH).shape == COLOUR.shape
    message = refused(path, pixel_limit=HEIGHT * WIDTH - 1)
    assert f"{WIDTH}×{HEIGHT} pixels; at most {HEIGHT * WIDTH - 1} are allowed" in message


def test_a_file_whose_decoding_takes_more_than_the_memory_allowed_is_refused_before(tmp_path: Path) -> None:
    pixels = HEIGHT * WIDTH
    for name, mode, size in (("a.png", "RGB", 10), ("a.jpg", "CMYK", 12), ("a.webp", "RGB", 16)):
        path = saved(tmp_path, name, Image.fromarray(COLOUR).convert(mode))
        assert read_image(path, 3, memory_limit=size * pixels).shape == COLOUR.shape
        assert f"may take {size * pixels} bytes to decode" in refused(path, memory_limit=size * pixels - 1)


def test_a_tile_larger_than_the_picture_in_it_counts_as_its_pixels(tmp_path: Path) -> None:
    entries = {256: (4, [8]), 257: (4, [8]), 258: (3, [8]), 259: (3, [8]), 262: (3, [1]), 277: (3, [1])}
    path = tmp_path / "a.tif"
    path.write_bytes(tiff({**entries, 322: (4, [16384]), 323: (4, [16384]), 324: (4, [0]), 325: (4, [9])}, b""))
    assert "states 16384×16384 pixels" in refused(path)


def test_a_picture_of_another_size_is_refused_by_its_header_where_none_is_resampled(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(8000, 8000, 8, 2, b""))  # without its pixels
    assert count_pixels(path) == 8000 * 8000
    assert "the image is 8000×8000, not 8×8" in refused(path, size=(8, 8))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.png")


def test_folder_is_refused(tmp_path: Path) -> None:
    assert "it cannot be opened" in refused(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not an image", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF-3.0\n"])
def test_file_that_is_no_image_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(content)
    refused(path)


@pytest.mark.parametrize(("width", "height"), [(0, 4), (4, 0), (0, 0)])
def test_empty_image_is_refused(tmp_path: Path, width: int, height: int) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(width, height, 8, 2, b""))
    refused(path)


@pytest.mark.parametrize(
    ("image_format", "options"),
    [("PNG", {}), ("JPEG", {}), ("BMP", {}), ("GIF", {}), ("PPM", {}), ("TIFF", {}), ("WEBP", {"lossless": True})],
)
@pytest.mark.parametrize("part", [0.01, 0.05, 0.2, 0.5, 0.9])
def test_truncated_file_is_refused(tmp_path: Path, image_format: str, options: dict[str, Any], part: float) -> None:
    content = encoded(image_format, **options)
    path = tmp_path / "cut"
    path.write_bytes(content[: int(part * len(content))])
    refused(path)


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "GIF"])
def test_file_without_its_last_bytes_is_refused_or_whole(tmp_path: Path, image_format: str) -> None:
    content = encoded(image_format)
    path = tmp_path / "cut"
    path.write_bytes(content)
    whole = read_image(path, 3)
    for missing in range(1, 25):
        path.write_bytes(content[:-missing])
        try:
            pixels = read_image(path, 3)
        except ImageError:
            continue
        np.testing.assert_array_equal(pixels, whole)


def test_damaged_pixels_are_refused(tmp_path: Path) -> None:
    content = bytearray(encoded("PNG"))
    content[len(content) // 2] ^= 0xFF
    path = tmp_path / "a.png"
    path.write_bytes(content)
    assert "it is broken or cut short" in refused(path)


@pytest.mark.parametrize("part", [1.0, 0.5, 0.001], ids=["whole", "cut", "no-image"])
def test_no_file_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: float) -> None:
    content = encoded("PNG")
    path = tmp_path / "a.png"
    path.write_bytes(content[: int(part * len(content))])
    opened = []
    plain_open = Path.open

    def watched_open(self: Path, mode: str) -> Any:
        opened.append(plain_open(self, mode))
        return opened[-1]

    monkeypatch.setattr(Path, "open", watched_open)
    try:
        read_image(path, 3)
    except ImageError:
        assert part < 1
    assert [file.closed for file in opened] == [True]


@pytest.mark.parametrize("channels", [0, 2, 4])
def test_other_channel_counts_are_refused(tmp_path: Path, channels: int) -> None:
    with pytest.raises(OptionError, match=f"channels is {channels}; allowed: 1 for grey, 3 for colour"):
        read_image(tmp_path / "a.png", channels)


def test_pixel_limit_must_be_a_whole_number(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="pixel_limit is 0"):
        read_image(tmp_path / "a.png", 3, pixel_limit=0)
