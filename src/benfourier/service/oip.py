"""The Open Inference Protocol, version 2, over HTTP: health, metadata, infer."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse

from benfourier import __version__
from benfourier.service import refusals, schemas
from benfourier.service.bodies import packed, unpacked
from benfourier.service.documents import SENDING, body, complaints
from benfourier.service.judge import shape_of
from benfourier.service.service import Service
from benfourier.service.tensors import INPUT, OUTPUTS, Asked, read, write

LENGTH = "Inference-Header-Content-Length"
BYTES = "application/octet-stream"
KINDS = ("", "application/json", BYTES, "application/x-www-form-urlencoded")  # the last: what curl calls any body
MODEL = "/v2/models/{model_name}"
VERSION = MODEL + "/versions/{model_version}"
BINARY = {"type": "string", "format": "binary"}
INFER: dict[str, Any] = {
    "responses": {
        200: {"model": schemas.InferResponse, "description": "The verdicts.", "content": {BYTES: {"schema": BINARY}}},
        **complaints(404, *SENDING),
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": LENGTH,
                "in": "header",
                "required": False,
                "description": "Length of the JSON, if tensors follow it as bytes.",
                "schema": {"type": "integer", "minimum": 0},
            }
        ],
        **body(("application/json", schemas.InferRequest), (BYTES, BINARY)),
    },
}
FACTS: dict[str, Any] = {"response_model": schemas.ModelMetadata, "responses": complaints(404, 503)}
READY: dict[str, Any] = {"response_model": schemas.ModelReady, "responses": complaints(404, 503)}


def routes(service: Service) -> APIRouter:
    """Returns the routes of the protocol."""
    router = APIRouter(tags=["Open Inference Protocol"])
    Name = Annotated[str, Path(json_schema_extra={"enum": [service.settings.name]})]  # noqa: N806, a type

    @router.get("/v2/health/live", response_model=schemas.Live)
    async def live() -> Response:
        """Says that the server is alive."""
        return JSONResponse({"live": True})

    @router.get("/v2/health/ready", response_model=schemas.ServerReady, responses=complaints(503))
    async def ready() -> Response:
        """Says that images can be judged."""
        return JSONResponse({"ready": bool(service.judge)})

    @router.get("/v2", response_model=schemas.ServerMetadata, responses=complaints())
    async def server() -> Response:
        """Says what the server is."""
        return JSONResponse({"name": "benfourier", "version": __version__, "extensions": ["binary_tensor_data"]})

    @router.get(MODEL, **FACTS)
    async def model(model_name: Name) -> Response:
        """Says what the guard takes and says."""
        return _facts(service, model_name)

    @router.get(VERSION, **FACTS)
    async def version(model_name: Name, model_version: str) -> Response:
        """Says what that version of the guard takes and says."""
        return _facts(service, model_name, model_version)

    @router.get(f"{MODEL}/ready", **READY)
    async def model_ready(model_name: Name) -> Response:
        """Says that the guard can judge images."""
        return _ready(service, model_name)

    @router.get(f"{VERSION}/ready", **READY)
    async def version_ready(model_name: Name, model_version: str) -> Response:
        """Says that that version of the guard can judge images."""
        return _ready(service, model_name, model_version)

    @router.post(f"{MODEL}/infer", **INFER)
    async def infer(request: Request, model_name: Name) -> Response:
        """Judges images: label, accepted, score and threshold of each."""
        return await _infer(service, request, model_name)

    @router.post(f"{VERSION}/infer", **INFER)
    async def version_infer(request: Request, model_name: Name, model_version: str) -> Response:
        """Judges images with that version of the guard."""
        return await _infer(service, request, model_name, model_version)

    return router


def _check(service: Service, name: str, version: str | None) -> None:
    """Refuses names and versions other than those that are served."""
    if name != service.settings.name:
        raise refusals.unknown(f"there is no model {name[:50]!r}; the one that is served is {service.settings.name!r}")
    if version is not None and version != service.judge.version:
        raise refusals.unknown(f"there is no version {version[:50]!r}; the one at work is {service.judge.version!r}")


def _facts(service: Service, name: str, version: str | None = None) -> Response:
    _check(service, name, version)
    judge = service.judge
    inputs = [{"name": INPUT, "datatype": "FP32", "shape": [-1, *shape_of(judge.guard)]}]
    outputs = [{"name": name, "datatype": kind, "shape": [-1]} for name, (kind, _) in OUTPUTS.items()]
    told = {"name": name, "versions": [judge.version], "platform": "benfourier_pytorch"}
    return JSONResponse({**told, "inputs": inputs, "outputs": outputs})


def _ready(service: Service, name: str, version: str | None = None) -> Response:
    _check(service, name, version)
    return JSONResponse({"name": name, "ready": bool(service.judge)})


async def _infer(service: Service, request: Request, name: str, version: str | None = None) -> Response:
    _check(service, name, version)
    deadline = service.deadline()
    asked = await _asked(service, request, deadline)
    found = await service.judged(request, asked.images, deadline)
    content, length = write(found, asked, name)
    content, headers = packed(content, request.headers.get("accept-encoding", ""))
    if length is None:
        return Response(content, 200, headers, "application/json")
    return Response(content, 200, {**headers, LENGTH: str(length)}, BYTES)


async def _asked(service: Service, request: Request, deadline: float) -> Asked:
    """The request, read to its end."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in KINDS:
        raise refusals.unsupported(f"the content type is {kind!r}; allowed: application/json, {BYTES}")
    encoding, length = request.headers.get("content-encoding", ""), request.headers.get(LENGTH)
    subject, settings = service.guard.subject, service.settings
    async with service.bodies.body(request, deadline) as sent:

        def work() -> Asked:
            return read(unpacked(sent, encoding, settings.body), length, subject, settings)

        return await service.read(work, deadline)
