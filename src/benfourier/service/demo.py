"""Sample images to look at and to attack; only there if the service was started with a source of them."""

import asyncio
import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO

import torch
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from PIL import Image
from torch import Tensor

from benfourier.attacks.attack import attack
from benfourier.attacks.result import AttackResult
from benfourier.data.opening import open_source
from benfourier.data.reading import read
from benfourier.data.splits import spread
from benfourier.errors import InputError
from benfourier.service import refusals, schemas
from benfourier.service.bodies import unpacked
from benfourier.service.documents import body, complaints
from benfourier.service.service import Service
from benfourier.service.tensors import checked
from benfourier.subjects.images import images
from benfourier.subjects.subject import Subject

ATTACKS = ("bim", "bim-fixed")
TRIED, SHOWN = 40, 20
AT_ONCE = 4  # attacks that may be waited for


@dataclass(frozen=True, eq=False)
class Demo:
    """Sample images that the network classifies correctly.

    Args:
        source: where they come from.
        images: (N, C, H, W), with 8-bit pixels.
        labels: right classes, (N,).
        classes: their names, one per sample.
    """

    source: str
    images: Tensor
    labels: Tensor
    classes: Sequence[str]


def load_demo(text: str, subject: Subject) -> Demo:
    """Returns samples of a source, the classes in turn; those that the network misclassifies are left out."""
    channels = subject.known_channels or 3
    source = open_source(
        text, classes=subject.classes, channels=channels, size=subject.height_width, resize=subject.resize
    )
    found = read(source, spread(source.ids, source.labels, seed=0)[:TRIED]).images
    taken, labels = images(found.pixels, subject, layout="NHWC"), torch.from_numpy(found.labels)
    with torch.no_grad():
        right = (subject.logits(taken).argmax(1).cpu() == labels).nonzero().flatten()[:SHOWN]
    if not len(right):
        raise InputError(f"the network classifies none of {len(taken)} images of {text!r} correctly; give its own kind")
    return Demo(source.name, taken[right], labels[right], [source.classes[label] for label in labels[right].tolist()])


def png(image: Tensor, subject: Subject) -> bytes:
    """Returns an image (C, H, W) with 8-bit pixels as a PNG file that holds just these."""
    low, high = subject.bounds
    pixels = (255 * (image.double() - low) / (high - low)).round().to(torch.uint8).permute(1, 2, 0).numpy()
    out = BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(out, "PNG")
    return out.getvalue()


def routes(service: Service, demo: Demo) -> APIRouter:
    """Returns the routes to the samples."""
    router = APIRouter(prefix="/v1/demo", tags=["Demonstration"])
    free = asyncio.Semaphore(AT_ONCE)

    async def struck(work: Callable[[], AttackResult], deadline: float) -> AttackResult:
        if free.locked():
            raise refusals.busy(f"{AT_ONCE} attacks are being made", 2)
        async with free:
            try:
                async with asyncio.timeout_at(deadline):
                    return await service.engine.between(work)
            except TimeoutError as error:
                raise refusals.late(service.settings.seconds) from error

    @router.get("/samples", response_model=schemas.Samples, responses=complaints())
    async def samples() -> Response:
        """Lists the samples."""
        told = [
            {"sample": place, "label": label, "class_name": name}
            for place, (label, name) in enumerate(zip(demo.labels.tolist(), demo.classes, strict=True))
        ]
        return JSONResponse({"source": demo.source, "attacks": list(ATTACKS), "samples": told})

    @router.get(
        "/samples/{sample}",
        responses={
            200: {"content": {"image/png": {}}, "description": "The PNG file."},
            **complaints(404, 503),
        },
        response_class=Response,
    )
    async def sample(sample: str) -> Response:
        """Returns a sample as a PNG file."""
        return Response(png(demo.images[_place(sample, demo)], service.guard.subject), media_type="image/png")

    @router.post(
        "/attack",
        response_model=schemas.Attacked,
        responses=complaints(400, 404, 408, 413, 415, 429, 500, 503, 504),
        openapi_extra=body(("application/json", schemas.AttackRequest)),
    )
    async def strike(request: Request) -> Response:
        """Attacks a sample; the result has 8-bit pixels, so that the picture shown is the file judged."""
        deadline = service.deadline()
        async with service.bodies.body(request, deadline) as sent:
            content = unpacked(sent, request.headers.get("content-encoding", ""), service.settings.body)
            wanted = checked(schemas.AttackRequest, bytes(content))
        place, subject = _place(str(wanted.sample), demo), service.guard.subject

        def work() -> AttackResult:
            image, label = demo.images[place : place + 1], demo.labels[place : place + 1]
            return attack(wanted.attack, subject, image, label, eight_bit=True, show_progress=False)

        found = await struck(work, deadline)
        distances = {"linf": float(found.linf[0]), "l2": float(found.l2[0])}
        return JSONResponse(
            {
                "attack": wanted.attack,
                "success": bool(found.success[0]),
                **{name: value if math.isfinite(value) else None for name, value in distances.items()},
                "image": base64.b64encode(png(found.images[0], subject)).decode(),
            }
        )

    return router


def _place(sample: str, demo: Demo) -> int:
    """The place of a sample, or a refusal if there is none of that number."""
    if not sample.isascii() or not sample.isdecimal() or len(sample) > 6 or int(sample) >= len(demo.images):
        raise refusals.unknown(f"there is no sample {sample[:20]!r}; there are {len(demo.images)}, counted from 0")
    return int(sample)
