"""A thousand broken bodies and images: each gets the 4xx that belongs to it, and the server goes on."""

import base64
import gzip
import json
import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from tests.service.serving import IN_JSON, INFER, SETTINGS, Served, asked, clean, in_bytes, png
from tests.service.test_limits import bomb

COUNT = 1000
Request = dict[str, Any]
Broken = tuple[Request, set[int]]  # a request, and the answers that are right
OCTETS = {"Content-Type": "application/octet-stream"}


def to_infer(**request: Any) -> Request:
    kind = {} if "json" in request else IN_JSON
    return {"url": INFER, **request, "headers": {**kind, **request.get("headers", {})}}


def to_check(content: bytes, name: str = "a.png") -> Request:
    return {"url": "/v1/check", "files": [("images", (name, content, "image/png"))]}


def truncated_json(draw: random.Random) -> Broken:
    text = json.dumps(asked(clean(1))).encode()
    return to_infer(content=text[: draw.randrange(len(text))]), {400}


def truncated_bytes(draw: random.Random) -> Broken:
    content, headers = in_bytes(clean(2).numpy())
    return to_infer(content=content[: draw.randrange(len(content))], headers=headers), {400}


def surplus_bytes(draw: random.Random) -> Broken:
    content, headers = in_bytes(clean(2).numpy())
    return to_infer(content=content + draw.randbytes(draw.randint(1, 99)), headers=headers), {400}


def wrong_header(draw: random.Random) -> Broken:
    content, headers = in_bytes(clean(1).numpy())
    words = ("-1", "1e3", "x", "9" * 30, str(len(content) + 1), "0", str(draw.randint(1, 40)), "²")
    headers["Inference-Header-Content-Length"] = draw.choice(words)
    return to_infer(content=content, headers={k: v.encode("latin-1") for k, v in headers.items()}), {400}


def random_bytes(draw: random.Random) -> Broken:
    headers = draw.choice([OCTETS, {}, {**OCTETS, "Inference-Header-Content-Length": str(draw.randint(0, 50))}])
    return to_infer(content=draw.randbytes(draw.randrange(300)), headers=headers), {400}


def flipped_packing(draw: random.Random) -> Broken:
    packed = bytearray(gzip.compress(json.dumps(asked(clean(1))).encode()))
    if draw.random() < 0.5:
        packed = packed[: draw.randrange(len(packed))]
    else:
        packed[draw.randrange(10, len(packed))] ^= 1 << draw.randrange(8)
    return to_infer(content=bytes(packed), headers={"Content-Encoding": "gzip"}), {400}


def packing_bomb(draw: random.Random) -> Broken:
    content = gzip.compress(b" " * 4 * SETTINGS.max_body_bytes)
    return to_infer(content=content, headers={"Content-Encoding": "gzip"}), {413}


def huge(draw: random.Random) -> Broken:
    return to_infer(content=b"[" * (SETTINGS.max_body_bytes + draw.randint(1, 999))), {413}


def deep(draw: random.Random) -> Broken:
    return to_infer(content=b'{"inputs":' + b"[" * draw.randint(100, 100_000)), {400}


def wrong_values(draw: random.Random) -> Broken:
    images = clean(1).clone()
    bad = draw.choice([float("nan"), float("inf"), -float("inf"), -0.5, 1.5, 1e38, -3e-2])
    images.view(-1)[draw.randrange(64)] = bad
    if draw.random() < 0.5:
        content, headers = in_bytes(images.numpy())
        return to_infer(content=content, headers=headers), {400}
    return to_infer(content=json.dumps(asked(images)).encode()), {400}


def wrong_endianness(draw: random.Random) -> Broken:
    kind, name = draw.choice([(">f4", "FP32"), (">f8", "FP64")])
    values = np.random.default_rng(draw.randrange(2**32)).uniform(0.1, 0.9, (1, 1, 8, 8))
    content, headers = in_bytes(values.astype(kind), name)
    return to_infer(content=content, headers=headers), {400}


def wrong_shape(draw: random.Random) -> Broken:
    shape = draw.choice(
        [
            *([0, 1, 8, 8], [1, 8, 8], [64], [], [1, 3, 8, 8], [1, 1, 8, 9], [1, 1, 64, 1], [-1, 1, 8, 8]),
            *([2, 1, 8, 8], [1, 1, 8, 8, 1], [1, 0, 0, 0], [1.5, 1, 8, 8], ["1", 1, 8, 8], [2**70, 1, 8, 8], None, "8"),
        ]
    )
    request = asked(clean(1))
    request["inputs"][0]["shape"] = shape
    return to_infer(json=request), {400}


def large_shape(draw: random.Random) -> Broken:
    shape = draw.choice([[2**62, 1, 8, 8], [17, 1, 8, 8], [1, 1, 2**40, 2**40], [1, 1, 257, 256]])
    request = asked(clean(1))
    request["inputs"][0]["shape"] = shape
    return to_infer(json=request), {413}


def wrong_type(draw: random.Random) -> Broken:
    request = asked(clean(1))
    place = draw.choice(["datatype", "name", "data", "parameters"])
    values: dict[str, list[Any]] = {
        "datatype": ["FP16", "BYTES", "fp32", 7, None, "BOOL"],
        "name": ["image", "", 3, None, "../../etc/passwd"],
        "data": ["AAAA", None, {}, 5, ["a"] * 64, [None] * 64, [[1, 2], [3]], [True] * 64, [10**400] * 64, [1] * 63],
        "parameters": [[], "x", {"binary_data_size": 256}, {"binary_data_size": "256"}, {"a": {}}],
    }
    request["inputs"][0][place] = draw.choice(values[place])
    return to_infer(json=request), {400}


def wrong_request(draw: random.Random) -> Broken:
    request = asked(clean(1))
    change = draw.choice(
        [
            {"inputs": []},
            {"inputs": request["inputs"] * 2},
            {"inputs": None},
            {"id": 5},
            {"outputs": [{"name": "logits"}]},
            {"outputs": [{"name": "score"}] * 2},
            {"outputs": "score"},
            {"parameters": {"binary_data_output": "yes"}},
            {"outputs": [{"name": "score", "parameters": {"binary_data": 1}}]},
        ]
    )
    return to_infer(json={**request, **change}), {400}


def no_8_bit_values(draw: random.Random) -> Broken:
    request = asked(clean(1))
    request["inputs"][0] |= {"datatype": "UINT8", "data": [draw.choice([-1, 256, 0.5, 1e9])] * 64}
    return to_infer(json=request), {400}


def broken_png(draw: random.Random) -> Broken:
    content = bytearray(png(clean(1)[0]))
    if draw.random() < 0.5:
        content = content[: draw.randrange(len(content) // 2)]  # what only lacks its end still shows all pixels
    else:
        content[draw.randrange(0, 33)] ^= 1 << draw.randrange(8)  # signature or header, which has a checksum
    return to_check(bytes(content)), {422}


def bomb_png(draw: random.Random) -> Broken:
    return to_check(bomb()), {422}


def wrong_picture(draw: random.Random) -> Broken:
    sizes = torch.zeros(1, draw.choice([1, 7, 9, 200]), draw.choice([9, 33]))
    return to_check(draw.choice([png(sizes), b"", b"GIF89a", b"%PDF-1.4", b"\xff\xd8\xff", draw.randbytes(200)])), {422}


def broken_form(draw: random.Random) -> Broken:
    whole = httpx.Request("POST", "http://a", files=to_check(png(clean(1)[0]))["files"])
    content, kind = whole.read(), whole.headers["content-type"]
    kinds = [kind, "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=x"]
    chosen = draw.choice(kinds)
    end = draw.randrange(len(content) - 4) if chosen == kind else len(content)
    return {"url": "/v1/check", "content": content[:end], "headers": {"Content-Type": chosen}}, {400}


def broken_base64(draw: random.Random) -> Broken:
    text = base64.b64encode(png(clean(1)[0])).decode()
    images: Any = draw.choice(
        [[{"data": text[:-1]}], [{"data": "ä"}], [{"data": 5}], [], [{}], [text], None, [{"data": text + "!"}], "x"]
    )
    return {"url": "/v1/check", "json": {"images": images}}, {400}


def wrong_kind(draw: random.Random) -> Broken:
    kind = draw.choice(["text/plain", "image/png", "application/xml", "multipart/mixed; boundary=x"])
    return {"url": draw.choice([INFER, "/v1/check"]), "content": b"x", "headers": {"Content-Type": kind}}, {415}


KINDS: list[Callable[[random.Random], Broken]] = [
    *(truncated_json, truncated_bytes, surplus_bytes, wrong_header, random_bytes, flipped_packing, packing_bomb, huge),
    *(deep, wrong_values, wrong_endianness, wrong_shape, large_shape, wrong_type, wrong_request, no_8_bit_values),
    *(broken_png, bomb_png, wrong_picture, broken_form, broken_base64, wrong_kind),
]


def broken() -> Iterator[tuple[str, Broken]]:
    draw = random.Random(0)  # noqa: S311, to repeat it
    for number in range(COUNT):
        kind = KINDS[number % len(KINDS)]
        yield f"{number} {kind.__name__}", kind(draw)


def test_a_thousand_broken_bodies_get_the_right_4xx_each_and_the_server_still_answers(here: Served) -> None:
    before = here.engine.batcher.accepted
    wrong = {}
    for name, (request, right) in broken():
        answer = here.client.post(**request)
        if answer.status_code not in right or list(answer.json()) != ["error"]:
            wrong[name] = (answer.status_code, answer.text[:200])
    assert wrong == {}
    assert here.engine.batcher.accepted == before
    assert here.client.post(INFER, json=asked(clean(1))).status_code == 200


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"\0" * 100, b"POST / HTTP/9.9\r\n\r\n"])
def test_what_is_not_http_harms_nobody(here: Served, first: bytes) -> None:
    with socket.create_connection(here.place) as client:
        client.sendall(first)
    assert here.client.get("/v2/health/live").status_code == 200
