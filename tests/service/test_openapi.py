"""What the OpenAPI document promises, tried by schemathesis on a running service."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import positive_data_acceptance
from schemathesis.core.result import Ok

from tests.service.demos import demo
from tests.service.serving import Served, served

EXAMPLES = 25
ALL = list(HealthCheck)
# A body may fit its schema and still be wrong: data that do not fill the shape, text that is no image.
LEFT_OUT = [positive_data_acceptance]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with everything on."""
    with served(tmp_path_factory.mktemp("service"), samples=demo()) as found:
        yield found


def operations(address: str) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    return {found.ok().label: found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)}


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
    found, version = operations(shown.address), shown.service.judge.version
    assert len(found) == 15
    for label, operation in found.items():
        codes = tried(operation, GenerationMode.POSITIVE, version)
        if label.startswith("POST"):
            codes |= tried(operation, GenerationMode.NEGATIVE, version)
        assert codes & {200, 400, 422}, label


def test_the_document_names_every_route_and_nothing_from_outside(here: Served) -> None:
    document = here.client.get("/openapi.json").json()
    assert {"/v2/models/{model_name}/infer", "/v1/check", "/v1/guard", "/metrics"} <= document["paths"].keys()
    assert not any(path.startswith("/v1/demo") for path in document["paths"])
    assert "http://" not in here.client.get("/openapi.json").text.replace("http://www.w3.org", "")
    for path in ("/docs", "/redoc"):
        assert here.client.get(path).status_code == 404
