"""The Open Inference Protocol, version 2, over HTTP: health, metadata, infer."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from starlette.exceptions import HTTPException

from benfourier.service import schemas
from benfourier.service.engine import Engine
from benfourier.service.http_errors import BODY_ERRORS, error_responses
from benfourier.service.tensors import INPUT, OUTPUTS, read_call, write_response
from benfourier.service.uploads import check_content_type
from benfourier.version import __version__

TAGS: list[Any] = ["Open Inference Protocol"]
LENGTH = "Inference-Header-Content-Length"
BYTES = "application/octet-stream"
JSON = "application/json"
CONTENT_TYPES = (JSON, BYTES, "application/x-www-form-urlencoded", "")  # curl -d calls every body urlencoded
MODEL, VERSION = "/v2/models/{model_name}", "/versions/{model_version}"
BINARY = {"type": "string", "format": "binary"}
INFER: dict[str, Any] = {
    "responses": {
        200: {"model": schemas.InferResponse, "description": "The verdicts.", "content": {BYTES: {"schema": BINARY}}},
        **error_responses(*BODY_ERRORS),
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
        **schemas.request_body((JSON, schemas.InferRequest), (BYTES, BINARY)),
    },
}


def health_router(engine: Engine) -> APIRouter:
    """Returns the routes that need no token."""
    router = APIRouter(tags=TAGS)

    @router.get("/v2/health/live")
    async def live() -> schemas.ServerLive:
        """Says that the server is alive."""
        return schemas.ServerLive(live=True)

    @router.get("/v2/health/ready", responses=error_responses(503))
    async def ready() -> schemas.ServerReady:
        """Says that images can be judged."""
        return schemas.ServerReady(ready=bool(engine.current))

    return router


def protocol_router(engine: Engine) -> APIRouter:
    """Returns the other routes of the protocol; those of the model exist with and without a version."""
    served = engine.settings.name

    def check_model(model_name: Annotated[str, Path(json_schema_extra={"enum": [served]})]) -> None:
        if model_name != served:
            raise HTTPException(404, f"there is no model {model_name[:50]!r}; the one served is {served!r}")

    def check_version(model_version: str) -> None:
        if model_version != engine.current.version:
            current = engine.current.version
            raise HTTPException(404, f"there is no version {model_version[:50]!r}; the one at work is {current!r}")

    router = APIRouter(tags=TAGS)

    @router.get("/v2")
    async def server() -> schemas.ServerMetadata:
        """Returns the name and version of the server."""
        return schemas.ServerMetadata(name="benfourier", version=__version__, extensions=["binary_tensor_data"])

    for prefix, checks in ((MODEL, [check_model]), (MODEL + VERSION, [check_model, check_version])):
        router.include_router(_model_router(engine, prefix, [Depends(check) for check in checks]))
    return router


def _model_router(engine: Engine, prefix: str, dependencies: Sequence[Any]) -> APIRouter:
    # the prefix belongs to the router: one given to include_router would be missing in the metrics
    router = APIRouter(prefix=prefix, dependencies=dependencies, responses=error_responses(404, 503))
    name = engine.settings.name

    @router.get("")
    async def metadata() -> schemas.ModelMetadata:
        """Returns the inputs and outputs of the guard."""
        tensor = schemas.TensorMetadata
        return schemas.ModelMetadata(
            name=name,
            versions=[engine.current.version],
            platform="benfourier_pytorch",
            inputs=[tensor(name=INPUT, datatype="FP32", shape=[-1, *engine.current.image_shape])],
            outputs=[tensor(name=output, datatype=datatype, shape=[-1]) for output, datatype in OUTPUTS.items()],
        )

    @router.get("/ready")
    async def ready() -> schemas.ModelReady:
        """Says that the guard can judge images."""
        return schemas.ModelReady(name=name, ready=bool(engine.current))

    @router.post("/infer", **INFER)
    async def infer(request: Request) -> Response:
        """Judges images: label, accepted, score and threshold of each."""
        check_content_type(request.headers, CONTENT_TYPES)
        length, classifier = request.headers.get(LENGTH), engine.current.guard.classifier
        call = await engine.read(request, lambda body: read_call(body, length, classifier, engine.settings))
        outcome = await engine.check(call.images, request)
        content, json_length = write_response(outcome.verdicts, outcome.loaded.version, call, name)
        head = None if json_length is None else {LENGTH: str(json_length)}
        return Response(content, 200, head, BYTES if head else JSON)

    return router
