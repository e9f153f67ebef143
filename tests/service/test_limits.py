"""What a service refuses, and with which answer."""

import base64
import gzip
import json
import select
import socket
import struct
import threading
import zlib
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

import benfourier as bf
import benfourier.service.server as server
from benfourier.errors import OptionError
from benfourier.service import middleware, oip
from benfourier.service.middleware import check_origin
from benfourier.service.settings import Settings, allowed_hosts
from tests.service.serving import IN_JSON, INFER, SETTINGS, Served, asked, clean, head, in_bytes, png, served


def bomb() -> bytes:
    """A small PNG file whose header states 50 000 × 50 000 pixels."""
    small = BytesIO()
    Image.new("L", (1, 1)).save(small, "PNG")
    content = small.getvalue()
    start = b"IHDR" + struct.pack(">II", 50_000, 50_000) + content[24:29]
    return content[:12] + start + struct.pack(">I", zlib.crc32(start)) + content[33:]


def refused(answer: httpx.Response, status: int, *words: str) -> None:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert all(word in error for word in words), error


def test_a_body_over_the_limit_is_refused_whether_its_length_is_announced_or_not(here: Served) -> None:
    content = b"x" * (SETTINGS.max_body_bytes + 1)
    refused(here.client.post(INFER, content=content, headers=IN_JSON), 413, str(SETTINGS.max_body_bytes))
    parts = iter([content[:1000], content[1000:]])
    refused(here.client.post(INFER, content=parts, headers=IN_JSON), 413, str(SETTINGS.max_body_bytes))


def test_a_body_that_unpacks_to_more_than_the_limit_is_refused(here: Served) -> None:
    packed = gzip.compress(b"0" * 50 * SETTINGS.max_body_bytes)
    assert len(packed) < SETTINGS.max_body_bytes
    refused(here.client.post(INFER, content=packed, headers={**IN_JSON, "Content-Encoding": "gzip"}), 413, "unpacks")


def test_more_images_than_allowed_are_refused(here: Served) -> None:
    many = clean(1).repeat(SETTINGS.max_images + 1, 1, 1, 1)
    refused(here.client.post(INFER, json=asked(many)), 413, "17 images")
    files = [("images", ("a.png", png(image), "image/png")) for image in many]
    refused(here.client.post("/v1/check", files=files), 413, "17 images")


def test_a_request_of_many_small_parts_is_refused_before_they_are_made(here: Served) -> None:
    parts: list[Any] = [{}, [], {"name": "a", "data": ""}]
    for part in parts:
        answer = here.client.post("/v1/check", json={"images": [part] * 20_000})
        refused(answer, 400, "besides its data")
    picture = {"name": "[a] (b) {c} [d].png", "data": base64.b64encode(png(clean(1)[0])).decode()}
    assert here.client.post("/v1/check", json={"images": [picture] * SETTINGS.max_images}).status_code == 200


def test_one_complaint_is_enough_for_a_request(here: Served) -> None:
    answer = here.client.post("/v1/check", json={"images": [{"nam": "a"}] * 16})
    refused(answer, 400, "images")
    assert len(answer.text) < 400


def test_an_image_bomb_is_refused_before_it_is_decoded(here: Served) -> None:
    refused(here.client.post("/v1/check", files=[("images", ("b.png", bomb(), "image/png"))]), 422, "b.png", "pixels")


def test_a_tensor_with_too_many_pixels_is_refused_by_its_shape(here: Served) -> None:
    content, headers = in_bytes(np.zeros((1, 1, 8, 8), np.float32), shape=[1, 1, 2**31, 2**31])
    refused(here.client.post(INFER, content=content, headers=headers), 413, "pixels")


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[", "localhost.", "192.0.2.1"),
        *("user@localhost", "localhost#evil", "localhost/", "localhost:1:2", "localhost:x", "[localhost]", "::1"),
    ],
)
def test_a_request_for_another_host_is_refused_in_the_one_shape(here: Served, host: str) -> None:
    for answer in (
        here.client.get("/v1/guard", headers={"Host": host}),
        here.client.get("/", headers={"Host": host}),
        here.client.post(INFER, json=asked(clean(1)), headers={"Host": host}),
    ):
        refused(answer, 403, "Host", "--allow-host")
        assert answer.headers["x-request-id"]


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:8000"])
def test_loopback_names_are_allowed(here: Served, host: str) -> None:
    assert here.client.get("/v1/guard", headers={"Host": host}).status_code == 200


def test_other_hosts_can_be_allowed() -> None:
    assert allowed_hosts("127.0.0.1", ()) == ("localhost", "127.0.0.1", "::1")
    assert allowed_hosts("192.0.2.1", ("a.example",)) == ("localhost", "127.0.0.1", "::1", "192.0.2.1", "a.example")
    check_origin("GET", Headers({"host": "A.example:80"}), ("a.example",))
    check_origin("GET", Headers({"host": "anything"}), ("*",))
    with pytest.raises(HTTPException):
        check_origin("GET", Headers({}), ("a.example",))


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", ""])  # noqa: S104
def test_a_service_at_all_addresses_allows_addresses_and_no_names_but_those_given(bound: str) -> None:
    hosts = allowed_hosts(bound, ("a.example",))
    for host in ("192.0.2.1:8000", "[2001:db8::1]:8000", "[::1]", "localhost", "a.example:8000"):
        check_origin("GET", Headers({"host": host}), hosts)
    for host in ("evil.example", "192.0.2.1.evil.example", "[evil]", "192.0.2.1@evil.example", "any IP address", ""):
        with pytest.raises(HTTPException):
            check_origin("GET", Headers({"host": host}), hosts)
    with pytest.raises(HTTPException):
        check_origin("GET", Headers({"host": "a.example"}), allowed_hosts(bound, ()))


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
def test_posts_from_pages_of_other_sites_are_refused(here: Served, headers: dict[str, str]) -> None:
    before = here.engine.batcher.accepted
    for kind in ("application/json", "text/plain", "application/x-www-form-urlencoded"):
        answer = here.client.post(INFER, json=asked(clean(1)), headers={**headers, "Content-Type": kind})
        refused(answer, 403, "another site")
    assert here.engine.batcher.accepted == before
    assert here.client.get("/", headers=headers).status_code == 200  # a link to the page


def test_posts_from_the_services_own_page_are_served(here: Served) -> None:
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": here.address}, {"Sec-Fetch-Site": "none"}):
        assert here.client.post(INFER, json=asked(clean(1)), headers=headers).status_code == 200


def test_an_unknown_content_type_or_encoding_is_refused(here: Served) -> None:
    refused(here.client.post(INFER, content=b"a", headers={"Content-Type": "text/html"}), 415, "text/html")
    refused(here.client.post(INFER, content=b"a", headers={**IN_JSON, "Content-Encoding": "br"}), 415, "gzip")
    refused(here.client.post("/v1/check", content=b"a"), 415, "multipart")


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", "", None])
def test_tensors_must_say_that_they_are_json_or_binary(here: Served, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    text = json.dumps(asked(clean(1)))
    answer = here.client.post(INFER, content=text, headers=headers)
    refused(answer, 415, "application/json, application/octet-stream", "send the header Content-Type")
    content, binary = in_bytes(clean(1).numpy())
    del binary["Content-Type"]
    # Triton's client says no more than that bytes follow
    assert here.client.post(INFER, content=content, headers={**binary, **headers}).status_code == (
        200 if kind is None else 415
    )


def test_every_answer_has_the_security_headers_and_refusals_have_one_shape(here: Served) -> None:
    for path, status in (("/", 200), ("/v1/guard", 200), ("/nothing", 404), (INFER, 405)):
        answer = here.client.get(path)
        assert answer.status_code == status
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "server" not in answer.headers
        assert answer.headers["x-request-id"]
        assert status == 200 or list(answer.json()) == ["error"]


def test_without_the_token_only_the_page_and_health_are_served(tmp_path: Path) -> None:
    with served(tmp_path, Settings(token="a secret")) as service:  # noqa: S106
        assert service.client.post(INFER, json=asked(clean(1))).status_code == 200
        with httpx.Client(base_url=service.address) as anonymous:
            for path in ("/", "/page/page.js", "/v2/health/live", "/v2/health/ready"):
                assert anonymous.get(path).status_code == 200
            for path in ("/v1/guard", "/v1/card", "/card", "/v2/models/guard", "/metrics", "/openapi.json"):
                refused(anonymous.get(path), 401, "token")
            refused(anonymous.get("/nothing"), 404, "openapi")
            for word in ("Bearer another", "Bearer", "Basic a secret", "a secret", "Bearer \xe9"):
                answer = anonymous.post(INFER, json=asked(clean(1)), headers={b"Authorization": word.encode("latin-1")})
                refused(answer, 401, "token")
                assert answer.headers["www-authenticate"] == "Bearer"


def test_an_internal_error_is_logged_and_not_sent_to_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a secret path")

    with served(tmp_path) as service:
        monkeypatch.setattr(bf.Guard, "judge", fail)
        answer = service.client.post(INFER, json=asked(clean(1)))
    refused(answer, 500, answer.headers["x-request-id"])
    assert "secret" not in answer.text
    assert "a secret path" in caplog.text


def test_a_client_that_sends_its_body_too_slowly_gets_a_408(tmp_path: Path) -> None:
    settings = Settings(timeout_seconds=0.2)
    with served(tmp_path, settings) as service, socket.create_connection(service.place) as slow:
        slow.sendall(head(100) + b"slow")
        assert _received(slow).startswith(b"HTTP/1.1 408")


def test_the_time_limit_holds_while_a_body_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(oip, "read_call", lambda *_: gate.wait(30))
    with served(tmp_path, Settings(timeout_seconds=0.2)) as service:
        answer = service.client.post(INFER, json=asked(clean(1)))
        gate.set()
    refused(answer, 504, "0.2 s")


def test_bodies_that_together_take_too_much_memory_get_a_429(tmp_path: Path) -> None:
    settings = Settings(max_body_bytes=1000, max_memory_bytes=1000)
    begun = head(999) + b"x" * 900
    with served(tmp_path, settings) as service, ExitStack() as opened:
        slow = opened.enter_context(socket.create_connection(service.place))
        slow.sendall(begun)
        while (answer := service.client.post(INFER, content=b"x" * 900, headers=IN_JSON)).status_code != 429:
            assert answer.status_code == 400
            if select.select([slow], [], [], 0)[0]:  # it came second and got the 429 itself: once more
                slow = opened.enter_context(socket.create_connection(service.place))
                slow.sendall(begun)
        assert answer.headers["retry-after"] == "1"
        slow.close()
        while (answer := service.client.post(INFER, content=b"x" * 900, headers=IN_JSON)).status_code != 400:
            assert answer.status_code == 429


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nName" + b"x" * 10**5,
        f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
    ],
)
def test_what_is_not_http_gets_the_one_shape_of_errors(here: Served, sent: bytes) -> None:
    with socket.create_connection(here.place) as client:
        client.sendall(sent)
        top, _, body = _received(client).partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 400 ")
    for header in (b"content-type: application/json", b"x-request-id: ", b"x-content-type-options: nosniff"):
        assert header in top.lower()
    assert list(json.loads(body)) == ["error"]


def test_more_requests_than_may_be_served_at_once_get_a_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "MAX_REQUESTS", 1)
    begun = head(9)
    with served(tmp_path) as service:
        with socket.create_connection(service.place) as first:
            first.sendall(begun)
            while (answer := service.client.get("/v1/guard")).status_code != 503:
                assert answer.status_code == 200
            refused(answer, 503, "try again")
        while (answer := service.client.get("/v1/guard")).status_code != 200:
            assert answer.status_code == 503


def test_a_client_that_never_ends_its_headers_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    with served(tmp_path) as service, socket.create_connection(service.place) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert _received(slow) == b""
        assert service.client.get("/").status_code == 200


@pytest.mark.parametrize(
    "options",
    [
        *({"max_batch": 0}, {"timeout_seconds": 0}, {"max_queue": 1}, {"name": "a/b"}, {"token": ""}),
        *({"max_memory_bytes": 1}, {"watch_seconds": 0}, {"hosts": ("http://a/",)}, {"deterministic": 1}),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Settings(**options)  # type: ignore[arg-type]


def test_a_refused_request_never_reaches_the_queue(here: Served) -> None:
    before = here.engine.batcher.accepted
    refused(here.client.post(INFER, json=asked(torch.full((1, 1, 8, 8), 2.0))), 400, "bounds")
    assert here.engine.batcher.accepted == before


def _received(client: socket.socket) -> bytes:
    """All that comes until the server closes."""
    client.settimeout(30)
    return b"".join(iter(lambda: client.recv(4096), b""))
