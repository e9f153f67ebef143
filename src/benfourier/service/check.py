"""`/v1/check` for people, and what the page wants to know of the guard."""

import math
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from numpy.typing import NDArray
from torch import Tensor

from benfourier.service import schemas
from benfourier.service.bodies import packed, unpacked
from benfourier.service.documents import SENDING, body, complaints
from benfourier.service.evidence import evidence, kind_of
from benfourier.service.judge import Judged, shape_of
from benfourier.service.multipart import Upload
from benfourier.service.pictures import tensors, uploads
from benfourier.service.service import Service

BINS = 30
FORM = {
    "type": "object",
    "properties": {"images": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}},
    "required": ["images"],
}


def routes(service: Service, *, demo: bool) -> APIRouter:
    """Returns the routes; demo says whether samples can be had too."""
    router = APIRouter(tags=["Check"])

    @router.post(
        "/v1/check",
        response_model=schemas.CheckResponse,
        responses=complaints(*SENDING),
        openapi_extra=body(("multipart/form-data", FORM), ("application/json", schemas.CheckRequest)),
    )
    async def check(request: Request) -> Response:
        """Judges image files: verdict, label, score, threshold, and the evidence of every layer."""
        deadline = service.deadline()
        sent = await _sent(service, request, deadline)
        found = await service.judged(request, [image for _, image in sent], deadline)
        results = [_told(upload, found, row) for row, (upload, _) in enumerate(sent)]
        answer = JSONResponse({"version": found.version, "results": results})
        content, headers = packed(bytes(answer.body), request.headers.get("accept-encoding", ""))
        return Response(content, 200, headers, "application/json")

    @router.get("/v1/guard", response_model=schemas.GuardFacts, responses=complaints(503))
    async def facts() -> Response:
        """Says which guard is at work, on what its threshold was set, and whether the stream has changed since."""
        return JSONResponse({**_facts(service), "demo": demo})

    return router


async def _sent(service: Service, request: Request, deadline: float) -> list[tuple[Upload, Tensor]]:
    """The image files of a request, and what becomes of them."""
    encoding, settings, subject = request.headers.get("content-encoding", ""), service.settings, service.guard.subject
    async with service.bodies.body(request, deadline) as received:

        def work() -> list[tuple[Upload, Tensor]]:
            found = uploads(unpacked(received, encoding, settings.body), request.headers, settings)
            return list(zip(found, tensors(found, subject, settings), strict=True))

        return await service.read(work, deadline)


def _told(upload: Upload, found: Judged, row: int) -> dict[str, Any]:
    """What is said of one image file, by the guard that judged it."""
    label, classes = int(found.label[row]), found.guard.subject.classes
    return {
        "name": upload.name,
        "verdict": "accepted" if found.accepted[row] else "rejected",
        "label": label,
        "class_name": classes[label] if classes and label < len(classes) else str(label),
        "score": float(found.score[row]),
        "threshold": found.threshold,
        "evidence": [
            {
                "layer": part.layer,
                "values": _short(part.values),
                "mean": _short(part.mean),
                "deviation": _short(part.deviation),
                "oddness": float(f"{part.oddness:.4g}"),
            }
            for part in evidence(found.guard, found.numbers[row])
        ],
    }


def _short(values: NDArray[np.float64]) -> list[float]:
    """Numbers with as many digits as a chart can show."""
    return [float(f"{value:.5g}") for value in values]


def histogram(scores: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns counts and edges; scores that hardly differ lie in a range that can be divided."""
    low, high = float(scores.min()), float(scores.max())
    room = 1e-6 * max(abs(low), abs(high), 1.0)
    return np.histogram(scores, BINS, (low, high) if high - low > room else (low - room, high + room))


def _facts(service: Service) -> dict[str, Any]:
    guard, told = service.guard, service.drift.tell()
    channels, height, width = shape_of(guard)
    counts, edges = histogram(guard.calibration.scores)
    return {
        "name": service.settings.name,
        "version": service.judge.version,
        "detector": guard.detector.method.name,
        "evidence": kind_of(guard.detector),
        "classes": None if guard.subject.classes is None else list(guard.subject.classes),
        "channels": channels,
        "height": height,
        "width": width,
        "threshold": guard.threshold.value,
        "false_alarm_rate": guard.threshold.rate,
        "interval": list(guard.threshold.interval),
        "clean_images": guard.threshold.images,
        "clean_scores": {"edges": edges.tolist(), "counts": counts.tolist()},
        "drift": {
            "state": told.state,
            "scores": told.scores,
            "distance": None if math.isnan(told.distance) else told.distance,
            "p": None if math.isnan(told.p) else told.p,
        },
        "body_limit": service.settings.body,
    }
