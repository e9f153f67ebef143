"""The Open Inference Protocol, called by clients that others wrote."""

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from open_inference.openapi.client import OpenInferenceClient
from open_inference.openapi.errors.not_found_error import NotFoundError
from open_inference.openapi.types.inference_request import InferenceRequest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException

from tests.service.serving import IN_JSON, INFER, Served, asked, attacked, clean, guard, in_bytes, outputs

IMAGES = torch.cat([clean(3), attacked(3)])


@pytest.fixture
def triton(here: Served) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(here.address.removeprefix("http://")) as client:
        yield client


def tensor(images: torch.Tensor, *, binary: bool = True) -> InferInput:
    tensor = InferInput("images", list(images.shape), "FP32")
    tensor.set_data_from_numpy(images.numpy(), binary_data=binary)
    return tensor


def agree(label: Any, accepted: Any, score: Any, threshold: Any) -> None:
    verdicts = guard().check(IMAGES)
    assert np.array_equal(label, verdicts.label)
    assert np.array_equal(accepted, verdicts.accepted)
    assert not verdicts.accepted.all()
    assert np.allclose(score, verdicts.score, atol=1e-6)
    assert np.allclose(threshold, verdicts.threshold)


def agreed(result: InferResult) -> None:
    agree(*(result.as_numpy(name) for name in ("label", "accepted", "score", "threshold")))


def test_tritons_client_finds_the_server_live_and_ready_and_reads_what_it_is(triton: InferenceServerClient) -> None:
    client = triton
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("guard")
    assert not client.is_model_ready("other")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata("guard")
    assert metadata["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, 1, 8, 8]}]
    assert [output["name"] for output in metadata["outputs"]] == ["label", "accepted", "score", "threshold"]
    assert client.get_model_metadata("guard", metadata["versions"][0]) == metadata


def test_tritons_client_sends_and_gets_bytes(triton: InferenceServerClient) -> None:
    agreed(triton.infer("guard", [tensor(IMAGES)], request_id="7"))


def test_tritons_client_sends_and_gets_json(triton: InferenceServerClient) -> None:
    requested = [InferRequestedOutput(name, binary_data=False) for name in ("label", "accepted", "score", "threshold")]
    agreed(triton.infer("guard", [tensor(IMAGES, binary=False)], outputs=requested, headers=IN_JSON))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_tritons_client_packs_bodies(triton: InferenceServerClient, algorithm: str) -> None:
    agreed(
        triton.infer(
            "guard",
            [tensor(IMAGES)],
            request_compression_algorithm=algorithm,
            response_compression_algorithm=algorithm,
        )
    )


def test_tritons_client_gets_the_outputs_it_asks_for_some_of_them_as_bytes(triton: InferenceServerClient) -> None:
    requested = [InferRequestedOutput("score", binary_data=True), InferRequestedOutput("label", binary_data=False)]
    result = triton.infer("guard", [tensor(IMAGES)], outputs=requested, request_id="mine")
    response = result.get_response()
    assert [output["name"] for output in response["outputs"]] == ["score", "label"]
    assert response["id"] == "mine"
    assert np.allclose(result.as_numpy("score"), guard().check(IMAGES).score, atol=1e-6)


def test_tritons_client_gets_the_error_message(triton: InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="bounds"):
        triton.infer("guard", [tensor(IMAGES * 300)])


def test_the_open_inference_client_is_served(here: Served) -> None:
    client = OpenInferenceClient(base_url=here.address, httpx_client=here.client)
    client.check_server_liveness()
    client.check_server_readiness()
    client.check_model_readiness("guard")
    metadata = client.read_model_metadata("guard")
    assert metadata.versions
    client.check_model_version_readiness("guard", metadata.versions[0])
    result = client.model_infer("guard", request=InferenceRequest(**asked(IMAGES, id="a")))
    assert (result.id, result.model_name, result.model_version) == ("a", "guard", metadata.versions[0])
    columns = {output.name: output.data.__root__ for output in result.outputs}
    agree(*(columns[name] for name in ("label", "accepted", "score", "threshold")))
    with pytest.raises(NotFoundError):
        client.check_model_readiness("other")


def test_nested_flat_double_and_8_bit_tensors_give_the_same_verdicts(here: Served) -> None:
    nested = asked(IMAGES)
    nested["inputs"][0]["data"] = IMAGES.tolist()
    pixels = (IMAGES * 255).round().byte().numpy()
    requests: list[dict[str, Any]] = [
        {"json": nested},
        *(
            {"content": content, "headers": headers}
            for content, headers in (in_bytes(IMAGES.double().numpy(), "FP64"), in_bytes(pixels, "UINT8"))
        ),
    ]
    for request in requests:
        agree(*outputs(here.client.post(INFER, **request)).values())


def test_compressed_json_bodies_are_accepted(here: Served) -> None:
    text = json.dumps(asked(IMAGES)).encode()
    for encoding, content in (
        ("gzip", gzip.compress(text)),
        ("deflate", zlib.compress(text)),
        ("identity", text),
    ):
        agree(
            *outputs(
                here.client.post(INFER, content=content, headers={**IN_JSON, "Content-Encoding": encoding})
            ).values()
        )


def test_a_long_response_is_compressed_for_clients_that_accept_it(here: Served) -> None:
    for word, encoding in (("gzip", "gzip"), ("deflate", None), ("br", None)):
        answer = here.client.post(INFER, json=asked(torch.cat([IMAGES, IMAGES])), headers={"Accept-Encoding": word})
        assert answer.headers.get("content-encoding") == encoding
        assert answer.headers["vary"] == "Accept-Encoding"
        assert len(outputs(answer)["label"]) == 12


def test_a_deflate_body_without_zlibs_header_is_refused(here: Served) -> None:
    raw = zlib.compressobj(wbits=-15)
    content = raw.compress(json.dumps(asked(IMAGES)).encode()) + raw.flush()
    answer = here.client.post(INFER, content=content, headers={**IN_JSON, "Content-Encoding": "deflate"})
    assert answer.status_code == 400
    assert "no deflate stream" in answer.json()["error"]


def test_an_unknown_version_is_not_found(here: Served) -> None:
    for path in ("", "/ready"):
        assert here.client.get(f"/v2/models/guard/versions/0{path}").status_code == 404
    assert here.client.post("/v2/models/guard/versions/0/infer", json=asked(IMAGES)).status_code == 404
