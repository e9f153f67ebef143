"""Image files in requests, as multipart or as base64 in JSON; no file is ever opened, none is written."""

import base64
import binascii
from collections.abc import Sequence

from starlette.datastructures import Headers
from torch import Tensor

from benfourier.data.files import decode_image
from benfourier.data.resize import fit
from benfourier.errors import ImageError
from benfourier.service import refusals
from benfourier.service.multipart import Upload, files_in
from benfourier.service.schemas import CheckRequest
from benfourier.service.settings import Settings
from benfourier.service.tensors import checked
from benfourier.subjects.images import images
from benfourier.subjects.subject import Subject

FIELD = "images"
MARKS = 8  # brackets per image, those in its name included


def uploads(body: bytearray, headers: Headers, settings: Settings) -> list[Upload]:
    """Returns the image files in an unpacked body, or raises a refusal."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        found = files_in(body, headers["content-type"], FIELD)
    elif kind == "application/json":
        # a tree of many small parts takes many times the memory of its text
        if body.count(b"{") + body.count(b"[") > MARKS * (1 + settings.images):
            raise refusals.bad(f"the request has too many parts; at most {settings.images} images are allowed")
        found = [Upload(picture.name, _decoded(picture.data)) for picture in checked(CheckRequest, bytes(body)).images]
    else:
        raise refusals.unsupported(f"the content type is {kind!r}; allowed: multipart/form-data, application/json")
    if not found:
        raise refusals.bad(f"there is no image; send files in the field {FIELD!r}")
    if len(found) > settings.images:
        raise refusals.too_large(f"the request has {len(found)} images; at most {settings.images} are allowed")
    return found


def tensors(found: Sequence[Upload], subject: Subject, settings: Settings) -> list[Tensor]:
    """Returns image files as the subject takes them, each (C, H, W), or raises a refusal.

    Small files may hold large images, so that a network that takes any size could be sent more than the memory holds.
    """
    taken: list[Tensor] = []
    room = settings.held
    for upload in found:
        taken.append(_tensor(upload, subject, settings))
        room -= taken[-1].nbytes
        if room < 0:
            raise refusals.too_large(f"the images take more than {settings.held} bytes of memory; send fewer at a time")
    return taken


def _tensor(upload: Upload, subject: Subject, settings: Settings) -> Tensor:
    """An image file as the subject takes it, (C, H, W)."""
    try:
        pixels = decode_image(
            upload.content, subject.known_channels or 3, name=upload.name, pixel_limit=settings.pixels
        )
        if subject.height_width is not None:
            pixels = fit(pixels, subject.height_width, subject.resize)
        return images(pixels, subject, layout="NHWC")[0]
    except ImageError as error:
        told = str(error)
        raise refusals.unusable(told if told.startswith(upload.name) else f"{upload.name}: {told}") from error


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refusals.bad(f"the data of an image is no base64 ({error}); encode it again") from error
