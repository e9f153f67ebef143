"""The page: plain files of this package, read once."""

from collections.abc import Callable
from importlib.resources import files

from fastapi import APIRouter, Response
from starlette.responses import Response as Plain

KINDS = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
PATHS = {("/" if name == "index.html" else f"/page/{name}"): name for name in KINDS}
OPEN = frozenset({*PATHS, "/v2/health/live", "/v2/health/ready"})  # what needs no token


def routes() -> APIRouter:
    """Returns the routes to the page's files; names in requests are looked up, never opened."""
    router = APIRouter(include_in_schema=False)
    for path, name in PATHS.items():
        content = files("benfourier.service").joinpath("page", name).read_bytes()
        router.get(path)(_giver(content, KINDS[name]))
    return router


def _giver(content: bytes, kind: str) -> Callable[[], Response]:
    def give() -> Response:
        return Plain(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return give
