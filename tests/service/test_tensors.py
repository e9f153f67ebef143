"""Tensors in JSON: what is read, what is refused, and what memory it takes."""

import gzip
import json
import math
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from starlette.exceptions import HTTPException
from torch import nn

import benfourier as bf
from benfourier.service import oip
from benfourier.service.oip import InferCall, read_call
from benfourier.service.settings import Settings
from benfourier.service.uploads import CHUNK, unpack

LIMIT = 2**26
SETTINGS = Settings(max_body_bytes=LIMIT)
CLASSIFIER = bf.Classifier(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2)), channels=2)
SHAPE = [3, 2, 4, 5]
VALUES = np.random.default_rng(0).uniform(0, 1, SHAPE)


def text(data: str, shape: list[int] | None = None, datatype: str = "FP32") -> bytearray:
    tensor = {"name": "images", "shape": shape or SHAPE, "datatype": datatype, "data": []}
    return bytearray(json.dumps({"inputs": [tensor]}).replace('"data": []', f'"data": {data}').encode())


def read(body: bytearray) -> InferCall:
    return read_call(body, None, CLASSIFIER, SETTINGS, math.inf)


def refusal(body: bytearray) -> HTTPException:
    with pytest.raises(HTTPException) as refused:
        read(body)
    return refused.value


def peak(work: Callable[[], Any]) -> int:
    """Most bytes that Python and NumPy held at once during a call."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("chunk", [1, 7, 50, 10**6])
def test_numbers_are_read_as_json_reads_them(
    nested: bool, indent: int | None, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oip, "CHUNK", chunk)
    monkeypatch.setattr(oip, "MAX_PIECE", 10**6)
    values = VALUES if nested else VALUES.ravel()
    images = read(text(json.dumps(values.tolist(), indent=indent))).images
    assert np.array_equal(torch.stack(images).numpy(), VALUES.astype(np.float32))


@pytest.mark.parametrize(
    "number", ["0", "-0", "1", "0.5", "5e-1", "5E-1", "0.05e+1", "1e-400", "0.3333333333333333333"]
)
def test_every_way_to_write_a_number_is_understood(number: str) -> None:
    (image,) = read(text(f"[{number}, {number}]", [1, 2, 1, 1])).images
    assert image.flatten().tolist() == [np.float32(float(number))] * 2


@pytest.mark.parametrize(
    "number", ["01", ".5", "1.", "+1", "--1", "1e", "0x1", "nan", "Infinity", "true", "null", "1 1"]
)
def test_what_is_no_json_number_is_refused(number: str) -> None:
    assert refusal(text(f"[0, {number}]", [1, 2, 1, 1])).status_code == 400


@pytest.mark.parametrize(
    "data",
    [
        *("[]", "[[]]", "[0]", "[0, 0, 0]", "[0,, 0]", "[, 0]", "[0, 0,]", "[0, 0]]", "[[0, 0]", "[0][0]", "[[0, 0]]"),
        *(
            "[[[0], [0]]]",
            "[[[[0, 0]]]]",
            "[[[[0]]], [[[0]]]]",
            "[[[[0]], [[0]]], []]",
            "[[[[0]], [[0]]]]]",
            "5",
            '"a"',
        ),
        *('"a"', '["a", "b"]', "{}", "[{}, {}]", "[[[[0]], [0]]]", "[[[[0]]], [[0]]]"),
    ],
)
def test_data_that_do_not_have_the_shape_are_refused(data: str) -> None:
    assert refusal(text(data, [1, 2, 1, 1])).status_code == 400
    assert len(read(text("[[[[0]], [[0]]]]", [1, 2, 1, 1])).images) == 1


def test_data_of_8_bit_pixels_must_be_whole() -> None:
    (image,) = read(text("[0, 255]", [1, 2, 1, 1], "UINT8")).images
    assert image.flatten().tolist() == [0.0, 1.0]
    for number in ("256", "-1", "1.0", "1e1", "0.5"):
        assert "whole" in refusal(text(f"[0, {number}]", [1, 2, 1, 1], "UINT8")).detail


def test_a_request_without_images_says_so() -> None:
    contents: list[dict[str, Any]] = [{"data": []}, {"parameters": {"binary_data_size": 0}}]
    for datatype in ("FP32", "UINT8"):
        for content in contents:
            tensor = {"name": "images", "shape": [0, 2, 1, 1], "datatype": datatype, **content}
            assert "there are no images" in refusal(bytearray(json.dumps({"inputs": [tensor]}).encode())).detail


def test_keys_and_marks_that_look_like_data_do_not_confuse() -> None:
    tensor = {"name": "images", "shape": [1, 2, 1, 1], "datatype": "FP32", "data": [1, 0]}
    body = {"id": '"data": [7] #1', "data": [5, 5], "x": {'"data': [6], "data": []}, "inputs": [tensor]}
    call = read(bytearray(json.dumps(body).encode()))
    assert call.id == body["id"]
    assert call.images[0].flatten().tolist() == [1.0, 0.0]
    for data in (["#0"], ["#7"], "#0"):
        assert refusal(bytearray(json.dumps({"inputs": [{**tensor, "data": data}]}).encode())).status_code == 400


@pytest.mark.parametrize(
    ("before", "part", "after"),
    [
        (b'{"outputs": [', b'{"name":"a"},', b'{"name":"a"}]}'),
        (b'{"inputs": [{"name":"images","shape":[1,2,1,1],"datatype":"FP32","data":[', b"[[]],", b"[[]]]}]}"),
        (b'{"inputs": [{"name":"images","shape":[1,2,4000,4000],"datatype":"FP32","data":[', b"[[]],", b"[[]]]}]}"),
        (b'{"inputs": [{"data":[', b"[", b"]}]}"),
        (b'{"parameters": {', b'"":1,', b'"":1}}'),
        (b'{"inputs": [', b'{"data":[]},', b'{"data":[]}]}'),
        (b'{"inputs": [{"shape": [', b"1,", b"1]}]}"),
        (b'{"inputs": [', b'"data",', b'"data"]}'),
    ],
)
def test_small_bodies_that_unpack_to_many_parts_are_refused_with_little_memory(
    before: bytes, part: bytes, after: bytes
) -> None:
    whole = before + part * min(5_000_000, (LIMIT - 1000) // len(part)) + after
    packed = bytearray(gzip.compress(whole, 1))
    assert len(packed) < LIMIT / 50

    def work() -> None:
        with pytest.raises(HTTPException) as refused:
            read(unpack(packed, "gzip", LIMIT))
        assert refused.value.status_code == 400

    # the unpacked body, the room in which it grows by an eighth, and little else
    assert peak(work) < 1.2 * len(whole) + 2**22


def test_numbers_are_read_no_further_once_the_time_is_up() -> None:
    body = text(json.dumps(VALUES.tolist()))
    with pytest.raises(TimeoutError):
        read_call(body, None, CLASSIFIER, SETTINGS, time.monotonic() - 1)


def test_a_request_takes_at_most_three_times_its_body() -> None:
    shape = [2, 2, 512, 512]
    body = text("[" + "0," * (2 * 2 * 512 * 512 - 1) + "0]", shape)
    calls: list[InferCall] = []
    # float32 takes twice the text of the shortest numbers; pieces take some more, whatever the body
    assert peak(lambda: calls.append(read(body))) + len(body) < 3 * len(body) + 30 * CHUNK
    assert len(calls[0].images) == 2
