"""Records of requests and responses: requests are checked by them, OpenAPI shows them."""

import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Parameters = dict[str, bool | int | float | str]
Size = Annotated[int, Field(ge=0, le=2**63 - 1)]
# JSON has neither NaN nor infinity
FiniteOrNone = Annotated[float | None, BeforeValidator(lambda value: value if math.isfinite(value) else None)]


class StrictModel(BaseModel):
    """Part of a request; a text is never read as a number."""

    model_config = ConfigDict(strict=True)


class RequestInput(StrictModel):
    """The images, as FP32 or FP64 within the bounds, or as UINT8 from 0 to 255."""

    name: str = Field(examples=["images"])
    shape: list[Size] = Field(min_length=4, max_length=4, description="Images, channels, height, width.")
    datatype: Literal["FP32", "FP64", "UINT8"]
    parameters: Parameters | None = None
    data: list[Any] | None = Field(None, description="Numbers, flat or nested; left out if they follow as bytes.")


class RequestOutput(StrictModel):
    """An output to send."""

    name: str = Field(examples=["accepted"])
    parameters: Parameters | None = None


class InferRequest(StrictModel):
    """The Open Inference Protocol's request."""

    id: str | None = None
    parameters: Parameters | None = None
    inputs: list[RequestInput] = Field(min_length=1, max_length=1)
    outputs: list[RequestOutput] | None = None


class ResponseOutput(BaseModel):
    """One of label, accepted, score and threshold, one value per image."""

    name: Literal["label", "accepted", "score", "threshold"]
    shape: list[int]
    datatype: Literal["INT64", "BOOL", "FP64"]
    parameters: Parameters | None = None
    data: list[bool | int | float] | None = None


class InferResponse(BaseModel):
    """The Open Inference Protocol's response."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[ResponseOutput]


class Error(BaseModel):
    """What is wrong, what is allowed, what to do."""

    error: str


class ServerLive(BaseModel):
    """Whether the server is alive."""

    live: bool


class ServerReady(BaseModel):
    """Whether the server can judge images."""

    ready: bool


class ModelReady(BaseModel):
    """Whether the guard can judge images."""

    name: str
    ready: bool


class ServerMetadata(BaseModel):
    """The name and version of the server."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """A tensor's type and shape; -1 where any size will do."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """The inputs and outputs of the guard."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ImageData(StrictModel):
    """An image file in a JSON request."""

    name: str = Field("image", max_length=200, description="Its name in the response.")
    data: str = Field(description="The content of the image file in base64.")


class CheckRequest(StrictModel):
    """Image files to be checked."""

    images: list[ImageData] = Field(min_length=1, fail_fast=True)


class LayerResponse(BaseModel):
    """One layer's features of the image, beside those of held-out clean images."""

    layer: str
    values: list[float]
    mean: list[float]
    deviation: list[float]
    oddness: float = Field(description="Root mean square of (value - mean) / deviation.")
    push: float = Field(description="By how much the score would fall with the mean of clean images in this layer.")


class CheckResult(BaseModel):
    """The verdict on one image."""

    name: str
    verdict: Literal["accepted", "rejected"]
    reason: Literal["", "adversarial", "unfamiliar"] = Field(description="Why it is rejected; empty if it is not.")
    p_value: float = Field(description="Rank among held-out clean images; at most the false-alarm rate is rejected.")
    label: int
    class_name: str
    score: float = Field(description="Higher is more adversarial.")
    threshold: float
    unfamiliarity: float | None = Field(description="Distance to the images that the guard knows; none if infinite.")
    most_unfamiliar: float = Field(description="An image above it is rejected as unfamiliar.")
    evidence: list[LayerResponse]


class CheckResponse(BaseModel):
    """The verdicts on image files, in the order of the files."""

    version: str
    results: list[CheckResult]


class ScoreHistogram(BaseModel):
    """How many held-out clean images have scores between two neighbouring edges."""

    edges: list[float]
    counts: list[int]


class DriftResponse(BaseModel):
    """Two-sample Kolmogorov-Smirnov test of recent scores against the calibration scores."""

    state: Literal["waiting", "steady", "changed"]
    scores: int
    distance: FiniteOrNone
    p: FiniteOrNone


class GuardResponse(BaseModel):
    """The guard at work."""

    name: str
    version: str
    detector: str
    evidence: Literal["spectrum", "margins", "numbers"]
    classes: list[str] | None
    channels: int
    height: int
    width: int
    threshold: float
    false_alarm_rate: float
    interval: tuple[float, float]
    clean_images: int
    clean_scores: ScoreHistogram
    drift: DriftResponse
    card: bool = Field(description="Whether there is a card at /v1/card.")
    demo: bool
    body_limit: int


class SampleInfo(BaseModel):
    """A sample image of the demonstration."""

    sample: int
    label: int
    class_name: str


class SamplesResponse(BaseModel):
    """The sample images, and the attacks that may be tried on them."""

    source: str
    attacks: list[str]
    samples: list[SampleInfo]


class AttackRequest(StrictModel):
    """A sample, and what to attack it with."""

    sample: int = Field(ge=0, le=10**6)
    attack: Literal["bim", "bim-fixed"] = "bim"


class AttackResponse(BaseModel):
    """A sample after an attack, as an 8-bit PNG file."""

    attack: str
    success: bool
    linf: FiniteOrNone
    l2: FiniteOrNone
    image: str = Field(description="The PNG file in base64.")


def request_body(*kinds: tuple[str, type[BaseModel] | dict[str, Any]]) -> dict[str, Any]:
    """Returns the description of a request's body for OpenAPI, by content type: a record or a schema.

    Routes read their bodies themselves, within limits, so that FastAPI does not know them.
    """
    content = {kind: {"schema": part if isinstance(part, dict) else _inline_schema(part)} for kind, part in kinds}
    return {"requestBody": {"required": True, "content": content}}


def _inline_schema(kind: type[BaseModel]) -> Any:
    """A record's JSON schema with the records in it written out in place of their references."""
    schema = kind.model_json_schema()
    parts = {f"#/$defs/{name}": part for name, part in schema.pop("$defs", {}).items()}
    return json.loads(json.dumps(schema), object_hook=lambda value: parts.get(str(value.get("$ref")), value))
