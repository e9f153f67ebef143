"""HTTP errors, all with one body: `{"error": message}`."""

import math
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request

from benfourier.service.schemas import Error

DESCRIPTIONS = {
    400: "The request is not what the protocol says.",
    401: "The bearer token is missing or wrong.",
    403: "The request names another host, or comes from a page of another site.",
    404: "There is no such thing.",
    408: "The request did not arrive in time.",
    413: "More bytes, pixels or images than are allowed.",
    415: "A content type that is missing or not allowed here, or an encoding that is not understood.",
    422: "The images cannot be judged.",
    429: "The queue is full; try again after Retry-After seconds.",
    500: "A fault of the server.",
    503: "The service is starting or shutting down, or serves as many requests as it may.",
    504: "The images were not judged in time.",
}
BODY_ERRORS = (400, 408, 413, 415, 422, 429, 500, 503, 504)  # of a request with images
UNAVAILABLE = "the service is starting or shutting down; try again"
CLOSE = {"Connection": "close"}  # the rest of the request is not read
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 408: CLOSE, 413: CLOSE, 503: {"Retry-After": "5"}}
STARLETTE_TEXTS = {
    "Not Found": "there is nothing at this address; see /openapi.json for what there is",
    "Method Not Allowed": "this address does not take this method; see the header Allow",
}


def error_responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Returns the error responses of a route, for the OpenAPI document."""
    return {code: {"model": Error, "description": DESCRIPTIONS[code]} for code in sorted(codes)}


async def error_response(_: Request, error: HTTPException) -> JSONResponse:
    """Returns the response for an error."""
    headers = {**HEADERS.get(error.status_code, {}), **(error.headers or {})}
    return JSONResponse({"error": STARLETTE_TEXTS.get(error.detail, error.detail)}, error.status_code, headers)


def too_many_requests(message: str, seconds: float) -> HTTPException:
    """Returns 429, with the seconds after which to try again."""
    wait = max(1, math.ceil(seconds))
    return HTTPException(429, f"{message}; try again in {wait} s", {"Retry-After": str(wait)})
