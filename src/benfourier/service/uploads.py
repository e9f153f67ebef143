"""Bodies of requests: content encoding, JSON, and image files as multipart or base64; all stays in memory."""

import asyncio
import base64
import re
import time
import zlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from torch import Tensor

from benfourier.data.image_files import count_pixels, read_image
from benfourier.errors import ImageError
from benfourier.models.classifier import Classifier
from benfourier.models.images import load_images
from benfourier.service.schemas import CheckRequest
from benfourier.service.settings import Settings

Model = TypeVar("Model", bound=BaseModel)
Pieces = dict[str, tuple[int, int]]  # start and end in the body, by mark
FIELD = "images"
CHUNK = 2**18  # bytes handled at once: a reader thread must let the event loop have its turn
MAX_PARTS = 1000  # of a multipart body
NAME_BYTES = 2048  # JSON around the data of one image: its keys and its name
DATA_KEY = re.compile(rb'(?<!\\)"data"[ \t\r\n]*:[ \t\r\n]*(?=[\["])')


def check_content_type(headers: Headers, allowed: Sequence[str]) -> str:
    """Returns the content type without its parameters, or raises 415."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in allowed:
        problem = f"the content type is {kind!r}" if kind else "the request has no content type"
        raise HTTPException(415, f"{problem}; allowed: {', '.join(allowed)}; send the header Content-Type")
    return kind


def unpack(body: bytearray, encoding: str, limit: int) -> bytearray:
    """Returns a body without its Content-Encoding, of at most limit bytes, or an HTTP error; clears the other."""
    word = encoding.strip().lower()
    if word in ("", "identity"):
        if len(body) > limit:
            raise HTTPException(413, f"the body has {len(body)} bytes; at most {limit} are allowed")
        return body
    if word not in ("gzip", "x-gzip", "deflate"):
        raise HTTPException(415, f"the content encoding is {encoding!r}; allowed: gzip, deflate, identity")
    reader = zlib.decompressobj(31 if "gzip" in word else 15)
    unpacked = bytearray()
    try:
        for start in range(0, len(body), CHUNK):
            rest = bytes(body[start : start + CHUNK])
            while not reader.eof:
                part = reader.decompress(rest, CHUNK)
                rest = reader.unconsumed_tail
                unpacked += part
                if len(unpacked) > limit:
                    raise HTTPException(413, f"the body unpacks to more than {limit} bytes, which are allowed")
                if not rest and len(part) < CHUNK:
                    break
            if reader.eof and (reader.unused_data or start + CHUNK < len(body)):
                raise HTTPException(400, f"something follows the {word} stream; send the stream alone")
    except zlib.error as error:
        raise HTTPException(400, f"the body is no {word} stream ({error}); pack it again") from error
    if not reader.eof:
        raise HTTPException(400, f"the {word} stream is cut short; pack it again")
    body.clear()  # only one of them is needed
    return unpacked


def split_data(body: bytearray, limit: int) -> tuple[bytearray, Pieces]:
    """Returns a JSON text without its data, and where in the body the data lie, by their marks.

    Values of keys called "data" that are arrays of numbers or texts without escapes are cut out, and the marks "#0",
    "#1" and so on put in their place. What is left has at most limit bytes, so that parsing it makes few objects.
    """
    rest, start = bytearray(), 0
    pieces: Pieces = {}
    while len(rest) <= limit and (key := DATA_KEY.search(body, start, start + limit)):
        begin = key.end()
        quote = body.find(b'"', begin + 1)
        if body[begin] == ord('"'):
            end = quote + 1
        else:  # numbers hold neither a quote nor a brace
            stop = len(body) if quote < 0 else quote
            brace = body.find(b"}", begin, stop)
            end = body.rfind(b"]", begin, stop if brace < 0 else brace) + 1
        if not end:
            raise HTTPException(400, "the data hold something else than numbers or base64, or are cut short")
        mark = f"#{len(pieces)}"
        pieces[mark] = (begin, end)
        rest += body[start:begin] + (f'["{mark}"]' if body[begin] == ord("[") else f'"{mark}"').encode()
        start = end
    if len(rest) + len(body) - start > limit:
        raise HTTPException(400, f"the request has more than {limit} bytes besides its data; leave some out")
    return rest + body[start:], pieces


def find_piece(mark: str, pieces: Pieces) -> tuple[int, int]:
    """Returns where the data of a parsed record lie, or raises 400 if they were not cut out."""
    if mark not in pieces:
        raise HTTPException(400, "data are no array of numbers and no base64; write them without escapes")
    return pieces[mark]


def parse_json(kind: type[Model], text: bytearray) -> Model:
    """Returns a JSON text as a record, or raises 400 that names the first thing wrong."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise HTTPException(400, f"{place}: {first['msg']}; see /openapi.json for what is allowed") from error


class LargeRequestError(Exception):
    """The request needs more time or memory than the threads for small ones may give it."""


def check_deadline(deadline: float) -> None:
    """Raises TimeoutError after a deadline on the event loop's clock; nobody waits for the result any more."""
    if time.monotonic() > deadline:
        raise TimeoutError


def read_images(
    body: bytearray,
    headers: Headers,
    classifier: Classifier,
    settings: Settings,
    deadline: float,
    *,
    most_pixels: int | None = None,
) -> tuple[list[str], list[Tensor]]:
    """Returns the names of the image files in a body, and the images as the classifier takes them, each (C, H, W).

    The body is unpacked; it is cleared. Small files may hold large images, so all headers are read before anything is
    decoded: pixels take time, and memory for as long as an image is decoded. Images with more pixels than most_pixels
    together raise LargeRequestError.
    """
    if check_content_type(headers, ("multipart/form-data", "application/json")) == "application/json":
        files = _json_files(body, settings, deadline)
        body.clear()
    else:
        files = asyncio.run(_form_files(body, headers, deadline))
    if not files:
        raise HTTPException(400, f"there is no image; send files in the field {FIELD!r}")
    if len(files) > settings.max_images:
        raise HTTPException(413, f"the request has {len(files)} images; at most {settings.max_images} are allowed")
    pixels = _check_pixels(files, settings, deadline)
    if most_pixels is not None and pixels > most_pixels:
        raise LargeRequestError
    tensors: list[Tensor] = []
    for name, content in files:
        check_deadline(deadline)
        with _name_in_errors(name):
            tensors.append(_read_tensor(name, content, classifier, settings))
        if sum(tensor.nbytes for tensor in tensors) > settings.max_memory_bytes:
            raise HTTPException(
                413, f"the images take more than {settings.max_memory_bytes} bytes of memory; send fewer at a time"
            )
    return [name for name, _ in files], tensors


def _check_pixels(files: Sequence[tuple[str, bytes]], settings: Settings, deadline: float) -> int:
    """The number of pixels that the headers of all files state, or an HTTP error if there are too many."""
    total = 0
    for name, content in files:
        check_deadline(deadline)
        with _name_in_errors(name):
            total += count_pixels(content, name=name, pixel_limit=settings.max_pixels)
        if total > settings.max_pixels:
            raise HTTPException(
                413,
                f"the images have more than {settings.max_pixels} pixels together, which are allowed in one request; "
                "send fewer at a time, or start the service with more --max-pixels",
            )
    return total


def _read_tensor(name: str, content: bytes, classifier: Classifier, settings: Settings) -> Tensor:
    """The image in a file as the classifier takes it, (C, H, W)."""
    pixels = read_image(
        content,
        classifier.picture_channels or 3,
        classifier.size,
        classifier.resize,
        name=name,
        pixel_limit=settings.max_pixels,
        # all files take one body at most, so that a request takes three; some decoders copy the file
        memory_limit=2 * settings.max_body_bytes - len(content),
    )
    return load_images(pixels, classifier, layout="NHWC")[0]


@contextmanager
def _name_in_errors(name: str) -> Iterator[None]:
    """Turns an ImageError in the block into 422 that names the file."""
    try:
        yield
    except ImageError as error:
        message = str(error)
        raise HTTPException(422, message if message.startswith(name) else f"{name}: {message}") from error


def _json_files(body: bytearray, settings: Settings, deadline: float) -> list[tuple[str, bytes]]:
    """Names and contents of the files in a JSON text."""
    text, pieces = split_data(body, NAME_BYTES * (1 + settings.max_images))
    files = []
    for image in parse_json(CheckRequest, text).images:
        check_deadline(deadline)
        begin, end = find_piece(image.data, pieces)
        encoded = bytes(memoryview(body)[begin + 1 : end - 1]).replace(b"\\/", b"/")  # some encoders escape slashes
        try:
            files.append((image.name, base64.b64decode(encoded, validate=True)))
        except ValueError as error:
            raise HTTPException(400, f"the data of an image is no base64 ({error}); encode it again") from error
    return files


class _FormParser(MultiPartParser):
    """Starlette's parser; it keeps all files in memory, and notes whether the body came to its end."""

    spool_max_size = 2**62  # a container's file system may be read-only
    ended = False

    def on_end(self) -> None:
        self.ended = True

    def close(self) -> None:
        for file in self._files_to_close_on_error:  # all files, also one that is cut short
            file.close()


async def _form_files(body: bytearray, headers: Headers, deadline: float) -> list[tuple[str, bytes]]:
    """Names and contents of the files in the field `images` of a form; clears the body."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(body), CHUNK):
            check_deadline(deadline)
            yield bytes(body[start : start + CHUNK])

    parser = _FormParser(headers, chunks(), max_files=MAX_PARTS, max_fields=MAX_PARTS)
    try:
        with closing(parser):
            form = await parser.parse()
            if not parser.ended:  # Starlette leaves out the last file without a word
                raise ValueError("it is cut short")
            body.clear()  # the parser has a copy of each file, and reading them makes another
            parts = [value for name, value in form.multi_items() if name == FIELD and isinstance(value, UploadFile)]
            return [((part.filename or "")[:200] or "image", await part.read()) for part in parts]
    except (MultiPartException, ValueError) as error:
        reason = getattr(error, "message", error)
        raise HTTPException(400, f"the multipart body is broken ({reason}); send it again") from error
