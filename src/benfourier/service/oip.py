"""The Open Inference Protocol, version 2, over HTTP: health, metadata, infer, and its tensors in JSON or bytes.

The bytes are little-endian and row-major, one tensor after the other behind the JSON, whose length a header gives.
Nothing is built before its size is known: the JSON around the data is bounded, and the numbers go from the text to an
array in pieces, never as one Python object each. A request takes at most three times its body, and its images.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import APIRouter, Depends, Header, Path, Request, Response
from numpy.typing import NDArray
from pydantic import WithJsonSchema
from starlette.exceptions import HTTPException
from torch import Tensor

from benfourier.errors import ImageError
from benfourier.models.classifier import Classifier
from benfourier.models.images import load_images
from benfourier.service import schemas
from benfourier.service.engine import CheckOutcome, Engine
from benfourier.service.http_errors import BODY_ERRORS, error_responses
from benfourier.service.settings import Settings
from benfourier.service.uploads import (
    CHUNK,
    Pieces,
    check_content_type,
    check_deadline,
    find_piece,
    parse_json,
    split_data,
)
from benfourier.version import __version__

TAGS: list[Any] = ["Open Inference Protocol"]
LENGTH = "Inference-Header-Content-Length"
BYTES = "application/octet-stream"
JSON = "application/json"
MODEL, VERSION = "/v2/models/{model_name}", "/versions/{model_version}"
BINARY = {"type": "string", "format": "binary"}
INFER: dict[str, Any] = {
    "responses": {
        200: {"model": schemas.InferResponse, "description": "The verdicts.", "content": {BYTES: {"schema": BINARY}}},
        **error_responses(*BODY_ERRORS),
    },
    "openapi_extra": schemas.request_body((JSON, schemas.InferRequest), (BYTES, BINARY)),
}
# a number, but read as text: FastAPI would answer a wrong one in a shape of its own
JsonLength = Annotated[
    str | None,
    Header(alias=LENGTH, description="Length of the JSON, if tensors follow it as bytes."),
    WithJsonSchema({"type": "integer", "minimum": 0}),
]
INPUT = "images"
MAX_JSON = 2**16  # bytes of a request besides its data
DTYPES = {"FP32": "<f4", "FP64": "<f8", "UINT8": "|u1", "INT64": "<i8", "BOOL": "|b1"}
OUTPUTS = {"label": "INT64", "accepted": "BOOL", "score": "FP64", "threshold": "FP64"}
# numbers with brackets before and behind them, separated by commas; possessive, so that no way back is remembered
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+"
_ITEM = rb"[ \t\r\n\[]*+" + _NUMBER + rb"[ \t\r\n\]]*+"
NUMBERS = re.compile(_ITEM + rb"(?:," + _ITEM + rb")*+")
BLANKS = b" \t\r\n"
MAX_PIECE = 2 * CHUNK  # bytes without a comma: no number that anybody means is so long


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
    async def infer(request: Request, length: JsonLength = None) -> Response:
        """Judges images: label, accepted, score and threshold of each."""
        # Triton's client names no content type, but the length says that bytes follow; foreign pages cannot send that
        if "content-type" in request.headers or length is None:
            check_content_type(request.headers, (JSON, BYTES))
        classifier = engine.current.guard.classifier
        options = (length, classifier, engine.settings, request.state.deadline)
        call = await engine.read(request, lambda body, _: read_call(body, *options))
        return write_response(await engine.check(call.images, request), call, name)

    return router


@dataclass(frozen=True, eq=False)
class InferCall:
    """A checked request."""

    id: str | None  # to be sent back
    images: list[Tensor]  # each (C, H, W)
    outputs: tuple[tuple[str, bool], ...]  # names of the outputs to send, and whether as bytes


def read_call(
    body: bytearray, header: str | None, classifier: Classifier, settings: Settings, deadline: float
) -> InferCall:
    """Returns the request in an unpacked body, or raises an HTTP error.

    The header is Inference-Header-Content-Length; None if the body is JSON only.
    """
    most = len(body)
    if header is not None and not (re.fullmatch("[0-9]{1,12}", header) and int(header) <= most):
        message = f"is {header[:20]!r}; it must be the length of the JSON, {most} at most"
        raise HTTPException(400, f"Inference-Header-Content-Length {message}")
    length = most if header is None else int(header)
    binary = memoryview(body)[length:]
    text, pieces = split_data(body[:length] if len(binary) else body, MAX_JSON)
    request = parse_json(schemas.InferRequest, text)
    tensor, outputs = request.inputs[0], _requested_outputs(request)
    _check_size(tensor, classifier, settings)
    if (tensor.parameters or {}).get("binary_data_size") is not None:
        values = _binary_values(tensor, binary)
    elif len(binary):
        raise HTTPException(400, f"{len(binary)} bytes follow the JSON, and no input has a binary_data_size")
    else:
        values = _json_values(tensor, body, pieces, deadline)
    try:
        if values.dtype == np.uint8:
            # one by one: the conversion takes several times its images
            images = [load_images(image[None], classifier, layout="NCHW")[0] for image in values]
        else:
            tensors = torch.from_numpy(values)
            classifier.check_images(tensors)
            images = list(tensors.unbind())
    except ImageError as error:
        raise HTTPException(400, str(error)) from error
    return InferCall(request.id, images, outputs)


def write_response(outcome: CheckOutcome, call: InferCall, model: str) -> Response:
    """Returns the response: JSON, with a header for its length if bytes follow."""
    verdicts = outcome.verdicts
    outputs: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for name, as_bytes in call.outputs:
        output: dict[str, Any] = {"name": name, "datatype": OUTPUTS[name], "shape": [len(verdicts)]}
        column = np.broadcast_to(getattr(verdicts, name), len(verdicts))  # the threshold is one number for all
        if as_bytes:
            binary.append(column.astype(DTYPES[OUTPUTS[name]]).tobytes())
            output["parameters"] = {"binary_data_size": len(binary[-1])}
        else:
            output["data"] = column.tolist()
        outputs.append(output)
    record = {"model_name": model, "model_version": outcome.loaded.version, "outputs": outputs}
    text = json.dumps(record if call.id is None else {"id": call.id, **record}).encode()
    head = {LENGTH: str(len(text))} if binary else None
    return Response(b"".join([text, *binary]), 200, head, BYTES if binary else JSON)


def _check_size(tensor: schemas.RequestInput, classifier: Classifier, settings: Settings) -> None:
    """Raises an HTTP error unless the input has the right name, and a size within the limits."""
    if tensor.name != INPUT:
        raise HTTPException(400, f"the input is called {tensor.name[:50]!r}; it must be called {INPUT!r}")
    count, channels, height, width = tensor.shape
    if count < 1:
        raise HTTPException(400, f"there are no images in the shape {tensor.shape}; send at least one")
    if count > settings.max_images:
        raise HTTPException(413, f"the request has {count} images; at most {settings.max_images} are allowed")
    if height * width > settings.max_pixels:
        raise HTTPException(413, f"images have {height}×{width} pixels; at most {settings.max_pixels} are allowed")
    size = 4 * count * channels * height * width
    if size > settings.max_memory_bytes:
        raise HTTPException(413, f"the images take {size} bytes; at most {settings.max_memory_bytes} are allowed")
    # before the numbers are parsed, which takes half a microsecond each
    if classifier.channels not in (None, channels):
        raise HTTPException(400, f"images have channels {channels}; this classifier takes {classifier.channels}")
    if classifier.size not in (None, (height, width)):
        raise HTTPException(400, f"images have size {(height, width)}; this classifier takes {classifier.size}")


def _binary_values(tensor: schemas.RequestInput, binary: memoryview) -> NDArray[Any]:
    dtype = np.dtype(DTYPES[tensor.datatype])
    size, needed = (tensor.parameters or {})["binary_data_size"], math.prod(tensor.shape) * dtype.itemsize
    if tensor.data is not None:
        raise HTTPException(400, "the input has both data and a binary_data_size; it must have one of them")
    if isinstance(size, bool) or size != needed or len(binary) != needed:
        raise HTTPException(
            400,
            f"binary_data_size is {size!r} and {len(binary)} bytes follow the JSON; "
            f"{tensor.datatype} of shape {tensor.shape} takes {needed}",
        )
    values = np.frombuffer(binary, dtype).reshape(tensor.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        return values if tensor.datatype == "UINT8" else values.astype(np.float32)  # a copy, aligned for torch


def _json_values(tensor: schemas.RequestInput, body: bytearray, pieces: Pieces, deadline: float) -> NDArray[Any]:
    """The numbers of the input's data, in its shape: uint8, or else float32."""
    if tensor.data is None:
        raise HTTPException(400, "the input has neither data nor a binary_data_size; it must have one of them")
    begin, end = find_piece(str(tensor.data[0]) if len(tensor.data) == 1 else "", pieces)
    total, whole = math.prod(tensor.shape), tensor.datatype == "UINT8"
    wrong = HTTPException(
        400,
        f"data does not hold the {total} numbers of the shape {tensor.shape}; "
        "it must be numbers, flat or nested as the shape says",
    )
    if not 0 < 2 * total <= end - begin:  # a number and its comma or bracket take two bytes at least
        raise wrong
    nested = re.compile(rb"\[[ \t\r\n]*\[").match(body, begin) is not None
    sizes = [math.prod(tensor.shape[-axes:]) for axes in (1, 2, 3, 4)] if nested else [total]
    values, filled = np.empty(total, np.uint8 if whole else np.float32), 0
    while begin < end:  # in pieces of about CHUNK bytes, split at commas
        check_deadline(deadline)
        comma = body.find(b",", min(begin + CHUNK, end), end)
        stop = end if comma < 0 else comma
        if stop - begin > MAX_PIECE or NUMBERS.fullmatch(body, begin, stop) is None:
            raise wrong
        text, begin = bytes(body[begin:stop]), stop + 1
        part = np.fromstring(text.translate(None, BLANKS + b"[]"), sep=",")
        if not _brackets_fit(text, sizes, filled, len(part)) or filled + len(part) > total:
            raise wrong
        if whole and (any(letter in text for letter in b".eE") or part.min() < 0 or part.max() > 255):
            raise HTTPException(400, "data holds values that are not UINT8; they must be whole, from 0 to 255")
        with np.errstate(over="ignore"):
            values[filled : filled + len(part)] = part
        filled += len(part)
    if filled != total:
        raise wrong
    return values.reshape(tensor.shape)


def _brackets_fit(text: bytes, sizes: Sequence[int], first: int, count: int) -> bool:
    """Whether brackets open before and close behind the right numbers, count of them from number first on.

    The text matches NUMBERS; sizes are the numbers in each kind of list, innermost first.
    """
    marks = text.translate(None, BLANKS + b"+-.0123456789eE")
    places = np.arange(first, first + count)
    opened = np.sum([places % size == 0 for size in sizes], axis=0, dtype=np.uint8)
    closed = np.sum([(places + 1) % size == 0 for size in sizes], axis=0, dtype=np.uint8)
    counts = np.column_stack([opened, closed, np.ones_like(closed)])  # of "[", "]" and "," for each number
    return marks + b"," == np.repeat(np.tile(np.frombuffer(b"[],", np.uint8), count), counts.ravel()).tobytes()


def _requested_outputs(request: schemas.InferRequest) -> tuple[tuple[str, bool], ...]:
    """Names of the outputs to send, and whether as bytes."""
    default = _flag(request.parameters, "binary_data_output", False)
    outputs: Sequence[schemas.RequestOutput] = request.outputs or [schemas.RequestOutput(name=name) for name in OUTPUTS]
    names = [output.name for output in outputs]
    for name in names:
        if name not in OUTPUTS:
            raise HTTPException(400, f"there is no output {name[:50]!r}; allowed: {', '.join(OUTPUTS)}")
    if len(set(names)) < len(names):
        raise HTTPException(400, "an output is asked for twice; once is enough")
    return tuple((output.name, _flag(output.parameters, "binary_data", default)) for output in outputs)


def _flag(parameters: dict[str, Any] | None, name: str, default: bool) -> bool:
    value = (parameters or {}).get(name, default)
    if not isinstance(value, bool):
        raise HTTPException(400, f"{name} is {str(value)[:50]!r}; it must be true or false")
    return value
