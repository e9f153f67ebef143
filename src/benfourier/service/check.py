"""`/v1/check`: verdicts on image files, with evidence; `/v1/guard` and `/v1/card`: the guard at work and its card."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from benfourier.report.card import card_page
from benfourier.service import schemas
from benfourier.service.engine import CheckOutcome, Engine, short_numbers
from benfourier.service.http_errors import BODY_ERRORS, error_responses
from benfourier.service.uploads import read_images
from benfourier.store.card import GuardCard

BINS = 30
FORM = {
    "type": "object",
    "properties": {"images": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}},
    "required": ["images"],
}


def check_router(engine: Engine, *, demo: bool) -> APIRouter:
    """Returns the routes; demo says whether there are samples too."""
    router = APIRouter(tags=["Check"])

    @router.post(
        "/v1/check",
        response_model=schemas.CheckResponse,
        responses=error_responses(*BODY_ERRORS),
        openapi_extra=schemas.request_body(("multipart/form-data", FORM), ("application/json", schemas.CheckRequest)),
    )
    async def check(request: Request) -> Response:
        """Judges image files: verdict, label, score, threshold, and the evidence of every layer."""
        options = (request.headers, engine.current.guard.classifier, engine.settings, request.state.deadline)
        names, images = await engine.read(request, lambda body, most: read_images(body, *options, most_pixels=most))
        outcome = await engine.check(images, request)
        # many layers of many images take a while to write: other clients must not wait for it
        content = await engine.in_reader_thread(lambda: _content(names, outcome), request)
        return Response(content, 200, None, "application/json")

    @router.get("/v1/guard", responses=error_responses(503))
    async def guard() -> schemas.GuardResponse:
        """Describes the guard at work, its calibration, and whether the stream of scores has changed since."""
        loaded, drift = engine.current, engine.drift.test()
        detector, calibration, threshold = loaded.guard.detector, loaded.guard.calibration, loaded.guard.threshold
        classes, (channels, height, width) = detector.classifier.classes, loaded.image_shape
        counts, edges = histogram(calibration.scores)
        return schemas.GuardResponse(
            name=engine.settings.name,
            version=loaded.version,
            detector=detector.method.name,
            evidence=loaded.guard.evidence_kind,
            classes=None if classes is None else list(classes),
            channels=channels,
            height=height,
            width=width,
            threshold=threshold.value,
            false_alarm_rate=threshold.rate,
            interval=threshold.interval,
            clean_images=threshold.images,
            clean_scores=schemas.ScoreHistogram(edges=edges.tolist(), counts=counts.tolist()),
            drift=schemas.DriftResponse(state=drift.state, scores=drift.scores, distance=drift.distance, p=drift.p),
            card=loaded.guard.card is not None,
            demo=demo,
            body_limit=engine.settings.max_body_bytes,
        )

    # not async, so that a thread writes the card: it holds the scores of all images it was measured on
    @router.get("/v1/card", responses=error_responses(404, 503))
    def card() -> dict[str, Any]:
        """Returns the card: what the guard at work was measured to do; an estimate is [value, low, high]."""
        return _card(engine).as_json()

    @router.get("/card", response_class=HTMLResponse, responses=error_responses(404, 503))
    def page_of_card() -> Response:
        """Returns the card as a page."""
        return HTMLResponse(card_page(_card(engine)).encode(errors="replace"))

    return router


def _card(engine: Engine) -> GuardCard:
    card = engine.current.guard.card
    if card is None:
        raise HTTPException(404, "this guard has no card; `protect`, `fit` and `calibrate` make guards with cards")
    return card


def _content(names: Sequence[str], outcome: CheckOutcome) -> bytes:
    """The JSON of a response, with the evidence of the guard that judged the images."""
    loaded, results = outcome.loaded, []
    columns = (outcome.verdicts, outcome.verdicts.features, outcome.verdicts.unfamiliarity.tolist())
    for name, verdict, features, unfamiliarity in zip(names, *columns, strict=True):
        evidence = [
            {
                **clean,
                "values": short_numbers(layer.values),
                "oddness": float(f"{layer.rms_deviation:.4g}"),
                "push": float(f"{layer.push:.4g}"),
            }
            for layer, clean in zip(loaded.guard.evidence(features), loaded.clean_evidence, strict=True)
        ]
        word = "accepted" if verdict.accepted else "rejected"
        result = {"name": name, "verdict": word, "reason": verdict.reason, "p_value": verdict.p_value}
        result |= {"label": verdict.label, "class_name": verdict.name}
        result["unfamiliarity"] = unfamiliarity if math.isfinite(unfamiliarity) else None
        result["most_unfamiliar"] = loaded.guard.most_unfamiliar
        results.append({**result, "score": verdict.score, "threshold": verdict.threshold, "evidence": evidence})
    return json.dumps({"version": loaded.version, "results": results}, allow_nan=False).encode()


def histogram(scores: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns counts and edges; equal scores get a range that can still be divided."""
    low, high = float(scores.min()), float(scores.max())
    margin = 1e-6 * max(abs(low), abs(high), 1.0)
    return np.histogram(scores, BINS, (low, high) if high - low > margin else (low - margin, high + margin))
