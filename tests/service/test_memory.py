"""What small requests can make a service take: memory of its whole process, and the time of others."""

import gzip
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image, PngImagePlugin

from tests.service.serving import INFER, asked, clean, guard, png
from tests.service.test_serve_verb import folder, serving

__all__ = ["folder"]  # the fixture
MEGABYTES = 16  # of a body, as unpacked
LIMIT = MEGABYTES * 2**20
CHECK = "/v1/check"
BATCH = 16 * 2**20  # bytes that judging a batch of small digits may take beside the bodies, and what malloc keeps
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "multipart/form-data; boundary=b"}
PACKED = {"Content-Encoding": "gzip"}


def packed(before: bytes, part: bytes, after: bytes) -> bytes:
    """A small body that unpacks to the limit."""
    return gzip.compress(before + part * ((LIMIT - 1000) // len(part)) + after)


def form(*files: bytes) -> bytes:
    """Image files in a form."""
    head = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
    return b"".join(head + file + b"\r\n" for file in files) + b"--b--\r\n"


def image(kind: str, mode: str, side: int, **options: Any) -> bytes:
    """A small file of a large image of one colour."""
    content = BytesIO()
    Image.new(mode, (side, side), (9, 9, 9, 255)[: len(mode)]).save(content, kind, **options)
    return content.getvalue()


def texts() -> PngImagePlugin.PngInfo:
    """Texts of a PNG file that unpack to 60 MB."""
    info = PngImagePlugin.PngInfo()
    for number in range(60):
        info.add_text(str(number), "a" * 2**20, zip=True)
    return info


INPUT = b'{"inputs": [{"name":"images","shape":[1,1,8,8],"datatype":"FP32","data":['
FULL = {"progressive": True, "subsampling": 0}  # JPEG files that take the most
# where it goes, its headers, the body, the answer; the first two fill the limit, and were built into Python objects of
# many times its size before anything was checked; sides are such that the images may just be decoded, or not
BODIES: dict[str, tuple[str, dict[str, str], Callable[[], bytes], int]] = {
    "outputs": (
        INFER,
        JSON | PACKED,
        lambda: packed(b'{"outputs": [', b'{"name":"a"},', b'{"name":"a"}]}'),
        400,
    ),
    "nested data": (INFER, JSON | PACKED, lambda: packed(INPUT, b"[[]],", b"[[]]]}]}"), 400),
    "base64": (CHECK, JSON | PACKED, lambda: packed(b'{"images":[{"data":"', b"AAAA", b'"}]}'), 422),
    "form": (CHECK, FORM | PACKED, lambda: gzip.compress(form(bytes(LIMIT - 1000))), 422),
    "BMP": (CHECK, FORM | PACKED, lambda: gzip.compress(form(image("BMP", "RGB", 1500))), 200),
    "PNG": (CHECK, FORM, lambda: form(image("PNG", "RGBA", 1800)), 200),
    "larger PNG": (CHECK, FORM, lambda: form(image("PNG", "RGBA", 4096)), 422),
    "many PNG": (CHECK, FORM, lambda: form(*[image("PNG", "RGBA", 1000)] * 16), 200),
    "PNG with texts": (CHECK, FORM, lambda: form(image("PNG", "RGB", 8, pnginfo=texts())), 422),
    "JPEG": (CHECK, FORM, lambda: form(image("JPEG", "RGB", 1800, **FULL)), 200),
    "CMYK": (CHECK, FORM, lambda: form(image("JPEG", "CMYK", 1650, **FULL)), 200),
    "WebP": (CHECK, FORM, lambda: form(image("WEBP", "RGB", 1400, method=0)), 200),
}


def peak(process: int) -> int:
    """Bytes that a process has held at most since `forget_peak`."""
    return _kilobytes(process, "VmHWM") * 1024


def forget_peak(process: int) -> int:
    """Starts the peak of a process anew; returns the bytes that it holds."""
    Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")
    return _kilobytes(process, "VmRSS") * 1024


def _kilobytes(process: int, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


@contextmanager
def health_asked(address: str) -> Iterator[list[float]]:
    """Asks whether a service is alive while the block runs; yields the seconds that each answer took."""
    done, seconds = threading.Event(), list[float]()

    def ask() -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            while not (seconds and done.is_set()):
                start = time.monotonic()
                assert client.get("/v2/health/live").status_code == 200
                seconds.append(time.monotonic() - start)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield seconds
        finally:
            done.set()
            asking.result()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process has held at most")
def test_small_bodies_of_many_parts_or_large_images_take_three_times_the_limit_at_most_and_health_answers(
    folder: Path,
) -> None:
    guard(resize="stretch").save(folder / "guard.bf")  # images of other sizes are decoded
    with (
        serving(folder, "--max-megabytes", str(MEGABYTES)) as (process, address),
        httpx.Client(base_url=address, timeout=60, headers={"Authorization": "Bearer t"}) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        assert process.stderr is not None
        threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop the service
        # the first requests make what later ones use again
        assert client.post(INFER, json=asked(clean(8))).status_code == 200
        assert client.post(CHECK, files={"images": png(clean(1)[0])}).status_code == 200
        idle = forget_peak(process.pid)
        for name, (path, headers, make, status) in BODIES.items():
            body = make()
            assert len(body) < LIMIT / 50, name
            forget_peak(process.pid)
            post = partial(client.post, path, content=body, headers=headers)
            with health_asked(address) as seconds:
                answers = [each.result() for each in [pool.submit(post) for _ in range(3)]]
            assert [answer.status_code for answer in answers] == [status] * 3, name
            assert peak(process.pid) - idle <= 3 * LIMIT + BATCH, name
            assert max(seconds) < 2, name
