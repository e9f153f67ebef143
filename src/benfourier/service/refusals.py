"""Answers to requests that are not served, one shape for all: `{"error": message}`."""

import math

from starlette.exceptions import HTTPException


def bad(message: str) -> HTTPException:
    """Returns 400: the request is not what the protocol says."""
    return HTTPException(400, message)


def unknown(what: str) -> HTTPException:
    """Returns 404."""
    return HTTPException(404, what)


def too_slow(seconds: float) -> HTTPException:
    """Returns 408: the request did not arrive in time."""
    return HTTPException(
        408, f"the request did not arrive within {seconds:g} s; send it faster", {"Connection": "close"}
    )


def too_large(message: str) -> HTTPException:
    """Returns 413: more bytes, pixels or images than are allowed."""
    return HTTPException(413, message, {"Connection": "close"})


def unsupported(message: str) -> HTTPException:
    """Returns 415: a content type or encoding that is not understood."""
    return HTTPException(415, message)


def unusable(message: str) -> HTTPException:
    """Returns 422: the request is well formed, its images are not."""
    return HTTPException(422, message)


def busy(what: str, seconds: float) -> HTTPException:
    """Returns 429, and after how many seconds to come again."""
    wait = max(1, math.ceil(seconds))
    return HTTPException(429, f"{what}; come again in {wait} s", {"Retry-After": str(wait)})


def closing() -> HTTPException:
    """Returns 503: the service is on its way down, or not yet up."""
    return HTTPException(503, "the service is starting or shutting down; come again", {"Retry-After": "5"})


def late(seconds: float) -> HTTPException:
    """Returns 504: the answer was not there in time."""
    return HTTPException(504, f"the images were not judged within {seconds:g} s; send fewer, or come again")
