"""What the OpenAPI document says of routes beyond what their code tells."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from benfourier.service.schemas import Complaint

TOLD = {
    400: "The request is not what the protocol says.",
    401: "The bearer token is missing or wrong.",
    404: "There is no such thing.",
    408: "The request did not arrive in time.",
    413: "More bytes, pixels or images than are allowed.",
    415: "A content type or encoding that is not understood.",
    422: "The images cannot be judged.",
    429: "The queue is full; come again after Retry-After seconds.",
    500: "A fault of the server.",
    503: "The service is starting or shutting down.",
    504: "The images were not judged in time.",
}
SENDING = (400, 408, 413, 415, 422, 429, 500, 503, 504)  # what may become of a request with images


def complaints(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Returns the answers other than 200 that a route may give; 401 is among them always."""
    return {code: {"model": Complaint, "description": TOLD[code]} for code in sorted({401, *codes})}


def body(*kinds: tuple[str, type[BaseModel] | dict[str, Any]]) -> dict[str, Any]:
    """Returns the description of a request's body, by content type: a record or a schema."""
    content = {kind: {"schema": schema if isinstance(schema, dict) else _inlined(schema)} for kind, schema in kinds}
    return {"requestBody": {"required": True, "content": content}}


def document(app: FastAPI) -> dict[str, Any]:
    """Returns the OpenAPI document, without the answers that FastAPI adds and this service never gives."""
    if app.openapi_schema is None:
        found = FastAPI.openapi(app)
        for path in found["paths"].values():
            for operation in path.values():
                if "HTTPValidationError" in str(operation["responses"].get("422")):
                    del operation["responses"]["422"]
        for name in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(name, None)
        app.openapi_schema = found
    return app.openapi_schema


def _inlined(kind: type[BaseModel]) -> dict[str, Any]:
    """A record's JSON schema, its parts written out where they stand."""
    schema = kind.model_json_schema()
    parts = schema.pop("$defs", {})

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return put(parts[value["$ref"].rpartition("/")[2]])
            return {key: put(entry) for key, entry in value.items()}
        return [put(entry) for entry in value] if isinstance(value, list) else value

    found: dict[str, Any] = put(schema)
    return found
