"""Sample images to look at and to attack; only there if the service was started with a source of them."""

import asyncio
import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from benfourier.attacks.apply import attack
from benfourier.data.images import LabelledImages
from benfourier.errors import InputError
from benfourier.models.classifier import Classifier
from benfourier.models.images import encode_png, read_labelled
from benfourier.service import schemas
from benfourier.service.engine import Engine
from benfourier.service.http_errors import error_responses, too_many_requests
from benfourier.service.uploads import check_content_type, parse_json

ATTACKS = ("bim", "bim-fixed")
MAX_TRIED, MAX_SHOWN = 40, 20
MAX_ATTACKS = 4  # under way at once; they take the network's thread between batches
MAX_JSON = 2**16  # bytes of a request


@dataclass(frozen=True, eq=False)
class Demo:
    """Sample images that the network classifies correctly."""

    source: str  # name of their source
    samples: LabelledImages  # with 8-bit pixels
    class_names: Sequence[str]  # one per sample


def load_demo(text: str, classifier: Classifier) -> Demo:
    """Returns samples of a source, the classes in turn; those that the network misclassifies are left out."""
    source = classifier.open_source(text)
    labelled = read_labelled(classifier, source, MAX_TRIED, unreadable=[])
    with torch.no_grad():
        is_right = classifier.logits(labelled.images).argmax(1).cpu() == labelled.labels
    samples = labelled.take(is_right.nonzero().flatten()[:MAX_SHOWN])
    if not len(samples):
        raise InputError(
            f"the network classifies none of {len(labelled)} images of {text!r} correctly; give images of its classes"
        )
    own = classifier.classes or ()  # verdicts have these names
    names = own if len(own) >= len(source.classes) else source.classes
    return Demo(source.name, samples, [names[label] for label in samples.labels.tolist()])


def demo_router(engine: Engine, demo: Demo) -> APIRouter:
    """Returns the routes to the samples."""
    router = APIRouter(prefix="/v1/demo", tags=["Demonstration"])
    places = asyncio.Semaphore(MAX_ATTACKS)

    @router.get("/samples")
    async def samples() -> schemas.SamplesResponse:
        """Lists the samples."""
        rows = enumerate(zip(demo.samples.labels.tolist(), demo.class_names, strict=True))
        infos = [schemas.SampleInfo(sample=place, label=label, class_name=name) for place, (label, name) in rows]
        return schemas.SamplesResponse(source=demo.source, attacks=list(ATTACKS), samples=infos)

    @router.get(
        "/samples/{sample}",
        responses={200: {"content": {"image/png": {}}, "description": "The PNG file."}, **error_responses(404, 503)},
        response_class=Response,
    )
    async def sample(sample: str) -> Response:
        """Returns a sample as a PNG file."""
        content = encode_png(demo.samples.images[_sample_number(sample, demo)], engine.current.guard.classifier)
        return Response(content, media_type="image/png")

    @router.post(
        "/attack",
        responses=error_responses(400, 404, 408, 413, 415, 429, 500, 503, 504),
        openapi_extra=schemas.request_body(("application/json", schemas.AttackRequest)),
    )
    async def attack_sample(request: Request) -> schemas.AttackResponse:
        """Attacks a sample; the result has 8-bit pixels, so that the picture shown is the file judged."""
        check_content_type(request.headers, ("application/json",))
        call = await engine.read(request, lambda body, _: parse_json(schemas.AttackRequest, body), MAX_JSON)
        place, classifier = _sample_number(str(call.sample), demo), engine.current.guard.classifier
        images = demo.samples.take([place])
        work = partial(attack, call.attack, classifier, images, eight_bit=True, show_progress=False)
        if places.locked():
            raise too_many_requests(f"{MAX_ATTACKS} attacks are under way", 2)
        async with places, asyncio.timeout_at(request.state.deadline):
            result = await engine.batcher.exclusive(work)
        return schemas.AttackResponse(
            attack=call.attack,
            success=bool(result.success[0]),
            linf=float(result.linf[0]),  # infinite if the attack failed
            l2=float(result.l2[0]),
            image=base64.b64encode(encode_png(result.images[0], classifier)).decode(),
        )

    return router


def _sample_number(sample: str, demo: Demo) -> int:
    """The number of a sample, or 404 if there is none of that number."""
    if not re.fullmatch("[0-9]{1,6}", sample) or int(sample) >= len(demo.samples):
        raise HTTPException(404, f"there is no sample {sample[:20]!r}; there are {len(demo.samples)}, counted from 0")
    return int(sample)
