"""What the OpenAPI document promises, tried by schemathesis on a running service."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance
from schemathesis.core.result import Ok

from benfourier.service.settings import Settings
from tests.report.test_card import CARD
from tests.service.demos import demo
from tests.service.serving import Served, served

EXAMPLES = 25
ALL = list(HealthCheck)
# A body may fit its schema and still be wrong: data that do not fill the shape, text that is no image.
LEFT_OUT = [positive_data_acceptance]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with everything on."""
    with served(tmp_path_factory.mktemp("service"), samples=demo(), card=CARD) as service:
        yield service


def operations(address: str) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    return {result.ok().label: result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)}


def tried(operation: Any, mode: GenerationMode, version: str) -> set[int]:
    """The answers to requests that fit the document, or that break it."""
    codes: set[int] = set()

    @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=ALL)
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_it(case: Any) -> None:
        if "model_version" in case.path_parameters:
            case.path_parameters["model_version"] = version
        codes.add(case.call_and_validate(excluded_checks=LEFT_OUT).status_code)

    try_it()
    return codes


def test_schemathesis_finds_no_5xx_and_no_undocumented_answer(shown: Served) -> None:
    routes, version = operations(shown.address), shown.engine.current.version
    assert len(routes) == 17
    for label, operation in routes.items():
        codes = tried(operation, GenerationMode.POSITIVE, version)
        if label.startswith("POST"):
            codes |= tried(operation, GenerationMode.NEGATIVE, version)
        assert codes & {200, 400, 422}, label


def test_the_demonstration_takes_json_alone(shown: Served) -> None:
    for kind, status in (("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("application/json", 200)):
        answer = shown.client.post("/v1/demo/attack", content=b'{"sample": 0}', headers={"Content-Type": kind})
        assert answer.status_code == status
    large = shown.client.post("/v1/demo/attack", json={"sample": 0, "more": "x" * 70_000})
    assert large.status_code == 413


def test_the_document_says_that_a_token_is_needed(tmp_path: Path, here: Served) -> None:
    open_to_all = here.client.get("/openapi.json").json()
    assert "securitySchemes" not in open_to_all["components"]
    assert "answers 401" in open_to_all["info"]["description"]
    with served(tmp_path, Settings(token="secret")) as service:  # noqa: S106
        document = service.client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}
    assert document["paths"]["/v1/check"]["post"]["security"] == [{"HTTPBearer": []}]
    assert "security" not in document["paths"]["/v2/health/live"]["get"]


def test_the_document_names_every_route_and_nothing_from_outside(here: Served) -> None:
    document = here.client.get("/openapi.json").json()
    assert {"/v2/models/{model_name}/infer", "/v1/check", "/v1/guard", "/v1/card", "/card", "/metrics"} <= document[
        "paths"
    ].keys()
    assert not any(path.startswith("/v1/demo") for path in document["paths"])
    assert "http://" not in here.client.get("/openapi.json").text.replace("http://www.w3.org", "")
    for path in ("/docs", "/redoc"):
        assert here.client.get(path).status_code == 404
