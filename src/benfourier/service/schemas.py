"""What requests and answers look like, as OpenAPI shows it and as requests are checked."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Parameters = dict[str, bool | int | float | str]
Size = Annotated[int, Field(ge=0, le=2**63 - 1)]
DataType = Literal["FP32", "FP64", "UINT8"]


class Asked(BaseModel):
    """Part of a request: types are taken at their word."""

    model_config = ConfigDict(strict=True)


class RequestInput(Asked):
    """The images, as FP32 or FP64 within the bounds, or as UINT8 from 0 to 255."""

    name: str = Field(examples=["images"])
    shape: list[Size] = Field(min_length=4, max_length=4, description="Images, channels, height, width.")
    datatype: DataType
    parameters: Parameters | None = None
    data: list[Any] | None = Field(None, description="Numbers, flat or nested; left out if they follow as bytes.")


class RequestOutput(Asked):
    """An output that is wanted."""

    name: str = Field(examples=["accepted"])
    parameters: Parameters | None = None


class InferRequest(Asked):
    """The Open Inference Protocol's request."""

    id: str | None = None
    parameters: Parameters | None = None
    inputs: list[RequestInput] = Field(min_length=1, max_length=1)
    outputs: list[RequestOutput] | None = None


class ResponseOutput(BaseModel):
    """One of label, accepted, score and threshold, a number per image."""

    name: Literal["label", "accepted", "score", "threshold"]
    shape: list[int]
    datatype: Literal["INT64", "BOOL", "FP64"]
    parameters: Parameters | None = None
    data: list[bool | int | float] | None = None


class InferResponse(BaseModel):
    """The Open Inference Protocol's answer."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[ResponseOutput]


class Complaint(BaseModel):
    """What is wrong, what is allowed, what to do."""

    error: str


class Live(BaseModel):
    """That the server is alive."""

    live: bool


class ServerReady(BaseModel):
    """That the server can judge images."""

    ready: bool


class ModelReady(BaseModel):
    """That the guard can judge images."""

    name: str
    ready: bool


class ServerMetadata(BaseModel):
    """What the server is."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """What a tensor looks like; −1 where any size will do."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """What the guard takes and says."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class Picture(Asked):
    """An image file in a JSON request."""

    name: str = Field("image", max_length=200, description="What to call it in the answer.")
    data: str = Field(description="The content of the image file in base64.")


class CheckRequest(Asked):
    """Image files to be checked."""

    images: list[Picture] = Field(min_length=1, fail_fast=True)


class Layer(BaseModel):
    """One layer's numbers of the image, beside those of held-out clean images."""

    layer: str
    values: list[float]
    mean: list[float]
    deviation: list[float]
    oddness: float = Field(description="Root mean square of (value - mean) / deviation.")


class Checked(BaseModel):
    """What the guard says of one image."""

    name: str
    verdict: Literal["accepted", "rejected"]
    label: int
    class_name: str
    score: float = Field(description="Higher is more adversarial.")
    threshold: float
    evidence: list[Layer]


class CheckResponse(BaseModel):
    """What the guard says of image files, in the order in which they came."""

    version: str
    results: list[Checked]


class Bins(BaseModel):
    """How many held-out clean images have scores between two neighbouring edges."""

    edges: list[float]
    counts: list[int]


class DriftNow(BaseModel):
    """Recent scores against those on which the threshold was set: a two-sample Kolmogorov-Smirnov test."""

    state: Literal["waiting", "steady", "changed"]
    scores: int
    distance: float | None
    p: float | None


class GuardFacts(BaseModel):
    """The guard at work."""

    name: str
    version: str
    detector: str
    evidence: Literal["spectrum", "numbers"]
    classes: list[str] | None
    channels: int
    height: int
    width: int
    threshold: float
    false_alarm_rate: float
    interval: tuple[float, float]
    clean_images: int
    clean_scores: Bins
    drift: DriftNow
    demo: bool
    body_limit: int


class Sample(BaseModel):
    """A sample image of the demonstration."""

    sample: int
    label: int
    class_name: str


class Samples(BaseModel):
    """The sample images, and the attacks that may be tried on them."""

    source: str
    attacks: list[str]
    samples: list[Sample]


class AttackRequest(Asked):
    """A sample, and what to attack it with."""

    sample: int = Field(ge=0, le=10**6)
    attack: Literal["bim", "bim-fixed"] = "bim"


class Attacked(BaseModel):
    """A sample after an attack, as an 8-bit PNG file."""

    attack: str
    success: bool
    linf: float | None
    l2: float | None
    image: str = Field(description="The PNG file in base64.")
