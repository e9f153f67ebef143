"""The guard of small digits behind a real socket, and what to send it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

import benfourier as bf
from benfourier.service.app import make_app
from benfourier.service.engine import Engine, GuardFile
from benfourier.service.server import make_server, open_socket
from benfourier.service.settings import Settings
from tests.detectors.guarded import detector
from tests.detectors.toys import toys

NAMES = tuple("zero one two three four five six seven eight nine".split())
SETTINGS = Settings(
    max_body_bytes=2**20,
    max_memory_bytes=2**28,
    max_images=16,
    max_pixels=2**16,
    batch_wait_seconds=0.002,
    max_queue=4096,
)
INFER = "/v2/models/guard/infer"
IN_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Served:
    """A service that runs: its address, its application, the guard's file, and a client."""

    address: str
    app: FastAPI
    file: Path
    client: httpx.Client

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.address)
        return str(parts.hostname), int(parts.port or 0)

    @property
    def engine(self) -> Engine:
        engine: Engine = self.app.state.engine
        return engine


def guard(rate: float = 0.1, resize: str = "exact") -> bf.Guard:
    """The guard of small digits, with names of classes."""
    classifier = replace(toys().classifier, classes=NAMES, resize=resize)
    fitted = replace(detector(), classifier=classifier)
    return bf.Guard.calibrated(fitted, toys().tested.clean, rate, known=toys().fitted.clean)


@contextmanager
def running(app: FastAPI, settings: Settings) -> Iterator[str]:
    """Yields the address of an application that a thread of this process serves; at the end it is shut down."""
    listener = open_socket("127.0.0.1", 0)
    server = make_server(app, settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server")
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def served(
    folder: Path, settings: Settings = SETTINGS, card: bf.GuardCard | None = None, **options: Any
) -> Iterator[Served]:
    """Yields a running service; it is shut down behind the block."""
    file = folder / "guard.bf"
    replace(guard(), card=card).save(file)
    app = make_app(Engine(GuardFile(file, toys().classifier.module), settings), **options)
    headers = {} if settings.token is None else {"Authorization": f"Bearer {settings.token}"}
    with running(app, settings) as address, httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        client.get("/v2/health/live")
        yield Served(address, app, file, client)


def clean(count: int = 4) -> Tensor:
    """Clean digits as 8-bit files hold them."""
    return eight_bit(toys().tested.clean[:count])


def attacked(count: int = 4) -> Tensor:
    """Digits attacked by bim, as 8-bit files hold them."""
    return eight_bit(toys().tested.adversarial["bim"][:count])


def eight_bit(images: Tensor) -> Tensor:
    return (images * 255).round() / 255


def png(image: Tensor) -> bytes:
    """An image (1, H, W) as a PNG file."""
    out = BytesIO()
    Image.fromarray((image[0] * 255).round().byte().numpy()).save(out, "PNG")
    return out.getvalue()


def asked(images: Tensor, **more: Any) -> dict[str, Any]:
    """A request of the protocol in JSON."""
    data = images.double().flatten().tolist()
    return {"inputs": [{"name": "images", "shape": list(images.shape), "datatype": "FP32", "data": data}], **more}


def in_bytes(values: NDArray[Any], datatype: str = "FP32", **changes: Any) -> tuple[bytes, dict[str, str]]:
    """A request with the tensor as bytes behind the JSON, and its headers."""
    content = values.tobytes()
    tensor = {"name": "images", "shape": list(values.shape), "datatype": datatype}
    text = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": len(content)}, **changes}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text)), "Content-Type": "application/octet-stream"}
    return text + content, headers


def head(length: int) -> bytes:
    """The head of a request of the protocol in JSON, as it goes over the wire."""
    kind = "Host: 127.0.0.1\r\nContent-Type: application/json"
    return f"POST {INFER} HTTP/1.1\r\n{kind}\r\nContent-Length: {length}\r\n\r\n".encode()


def outputs(answer: httpx.Response) -> dict[str, Any]:
    """The outputs of a JSON answer by name."""
    return {output["name"]: np.array(output["data"]) for output in answer.json()["outputs"]}
