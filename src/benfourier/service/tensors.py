"""Tensors of the Open Inference Protocol, in JSON and as bytes behind it, the images of a request and its answer.

The bytes are little-endian and row-major, one tensor after the other behind the JSON, whose length a header tells.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from torch import Tensor

from benfourier.errors import ImageError
from benfourier.service import refusals
from benfourier.service.judge import Judged
from benfourier.service.schemas import InferRequest, RequestInput, RequestOutput
from benfourier.service.settings import Settings
from benfourier.subjects.images import images as from_bytes
from benfourier.subjects.subject import Subject

Model = TypeVar("Model", bound=BaseModel)
INPUT = "images"
TYPES = {"FP32": "<f4", "FP64": "<f8", "UINT8": "|u1"}
OUTPUTS = {
    "label": ("INT64", "<i8"),
    "accepted": ("BOOL", "|b1"),
    "score": ("FP64", "<f8"),
    "threshold": ("FP64", "<f8"),
}


@dataclass(frozen=True, eq=False)
class Asked:
    """A request that can be answered.

    Args:
        id: to be given back.
        images: checked, each (C, H, W).
        outputs: names of the wanted ones, and whether they are wanted as bytes.
    """

    id: str | None
    images: list[Tensor]
    outputs: tuple[tuple[str, bool], ...]


def read(body: bytearray, header: str | None, subject: Subject, settings: Settings) -> Asked:
    """Returns what a body asks for, or raises a refusal.

    Args:
        body: unpacked.
        header: Inference-Header-Content-Length; None if the body is JSON only.
        subject: says what images look like.
        settings: whose limits count.
    """
    length = len(body) if header is None else _length(header, len(body))
    asked = checked(InferRequest, bytes(body[:length]))
    values = _values(asked.inputs[0], body[length:], settings)
    try:
        found = _images(values, subject)
    except ImageError as error:
        raise refusals.bad(str(error)) from error
    return Asked(asked.id, list(found.unbind()), _wanted(asked))


def write(found: Judged, asked: Asked, model: str) -> tuple[bytes, int | None]:
    """Returns an answer's content, and the length of the JSON in it if bytes follow."""
    columns: dict[str, NDArray[Any]] = {
        "label": found.label,
        "accepted": found.accepted,
        "score": found.score,
        "threshold": np.full(len(found), found.threshold),
    }
    outputs: list[dict[str, Any]] = []
    behind: list[bytes] = []
    for name, binary in asked.outputs:
        datatype, kind = OUTPUTS[name]
        output: dict[str, Any] = {"name": name, "datatype": datatype, "shape": [len(found)]}
        if binary:
            behind.append(columns[name].astype(kind).tobytes())
            output["parameters"] = {"binary_data_size": len(behind[-1])}
        else:
            output["data"] = columns[name].tolist()
        outputs.append(output)
    told = {"model_name": model, "model_version": found.version, "outputs": outputs}
    text = json.dumps(told if asked.id is None else {"id": asked.id, **told}).encode()
    return b"".join([text, *behind]), len(text) if behind else None


def checked(kind: type[Model], text: bytes) -> Model:
    """Returns a JSON text as a record, or raises a refusal that names the first thing wrong."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise refusals.bad(f"{place}: {first['msg']}; see /openapi.json for what is allowed") from error


def _length(header: str, most: int) -> int:
    if not header.isdecimal() or not header.isascii() or len(header) > 12 or int(header) > most:
        raise refusals.bad(
            f"Inference-Header-Content-Length is {header[:20]!r}; it must be the length of the JSON, {most} at most"
        )
    return int(header)


def _values(tensor: RequestInput, behind: bytearray, settings: Settings) -> NDArray[Any]:
    """The numbers of the one input, in its shape."""
    if tensor.name != INPUT:
        raise refusals.bad(f"the input is called {tensor.name[:50]!r}; the one that is allowed is called {INPUT!r}")
    count, _, height, width = tensor.shape
    if count > settings.images:
        raise refusals.too_large(f"the request has {count} images; at most {settings.images} are allowed")
    if height * width > settings.pixels:
        raise refusals.too_large(f"images have {height}×{width} pixels; at most {settings.pixels} are allowed")
    size = (tensor.parameters or {}).get("binary_data_size")
    if size is None:
        if behind:
            raise refusals.bad(f"{len(behind)} bytes follow the JSON, and no input has a binary_data_size")
        return _listed(tensor)
    return _binary(tensor, size, behind)


def _binary(tensor: RequestInput, size: object, behind: bytearray) -> NDArray[Any]:
    kind = np.dtype(TYPES[tensor.datatype])
    wanted = math.prod(tensor.shape) * kind.itemsize
    if tensor.data is not None:
        raise refusals.bad("the input has both data and a binary_data_size; it must have one of them")
    if isinstance(size, bool) or size != wanted or len(behind) != wanted:
        raise refusals.bad(
            f"binary_data_size is {size!r} and {len(behind)} bytes follow the JSON; "
            f"{tensor.datatype} of shape {tensor.shape} takes {wanted}"
        )
    return np.frombuffer(behind, kind).reshape(tensor.shape)


def _listed(tensor: RequestInput) -> NDArray[Any]:
    if tensor.data is None:
        raise refusals.bad("the input has neither data nor a binary_data_size; it must have one of them")
    try:
        found = np.asarray(tensor.data)
    except (ValueError, OverflowError) as error:
        raise refusals.bad(
            f"data is no tensor ({error}); it must be numbers, flat or nested as the shape says"
        ) from error
    if found.size and found.dtype.kind not in "iuf":
        raise refusals.bad("data holds something else than numbers of usual size; only these are allowed")
    if found.shape not in ((math.prod(tensor.shape),), tuple(tensor.shape)):
        raise refusals.bad(f"data has the shape {list(found.shape)}, not {tensor.shape}; it must be that, or flat")
    if tensor.datatype == "UINT8":
        if found.dtype.kind == "f" or (found.size and not 0 <= found.min() <= found.max() <= 255):
            raise refusals.bad("data holds values that are not UINT8; they must be whole numbers from 0 to 255")
        found = found.astype(np.uint8)
    return found.reshape(tensor.shape)


def _images(values: NDArray[Any], subject: Subject) -> Tensor:
    """Values as float32 images that the subject takes; a copy, aligned as torch wants it."""
    if values.dtype == np.uint8 and values.size:
        return from_bytes(values, subject, layout="NCHW")
    with np.errstate(over="ignore", invalid="ignore"):
        found = torch.from_numpy(values.astype(np.float32))
    subject.check(found)
    return found


def _wanted(asked: InferRequest) -> tuple[tuple[str, bool], ...]:
    """Names of the wanted outputs, and whether they are wanted as bytes."""
    default = _flag(asked.parameters, "binary_data_output", False)
    outputs: Sequence[RequestOutput] = asked.outputs or [RequestOutput(name=name) for name in OUTPUTS]
    names = [output.name for output in outputs]
    for name in names:
        if name not in OUTPUTS:
            raise refusals.bad(f"there is no output {name[:50]!r}; allowed: {', '.join(OUTPUTS)}")
    if len(set(names)) < len(names):
        raise refusals.bad("an output is asked for twice; once is enough")
    return tuple((output.name, _flag(output.parameters, "binary_data", default)) for output in outputs)


def _flag(parameters: dict[str, Any] | None, name: str, default: bool) -> bool:
    value = (parameters or {}).get(name, default)
    if not isinstance(value, bool):
        raise refusals.bad(f"{name} is {str(value)[:50]!r}; it must be true or false")
    return value
