"""The application: routes, middleware, errors, and the service's start and end."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware

from benfourier.service.check import check_router
from benfourier.service.demo import Demo, demo_router
from benfourier.service.engine import Engine
from benfourier.service.http_errors import error_response, error_responses
from benfourier.service.middleware import RequestLimits, RequestLog, token_check
from benfourier.service.oip import health_router, protocol_router
from benfourier.service.schemas import Error
from benfourier.version import __version__

ABOUT = (
    "Verdicts on images: the network's label where the guard accepts, rejection of adversarial ones. A service that "
    "has a token wants it as a bearer token for all but health and the files of the page, and answers 401 without."
)
# with a default response FastAPI adds no 422 of its own, which this service never gives
DEFAULT: dict[int | str, dict[str, Any]] = {"default": {"model": Error, "description": "Another error."}}


def make_app(engine: Engine, samples: Demo | None = None) -> FastAPI:
    """Returns the application, with samples to be attacked on the page."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with engine.lifespan(), asyncio.TaskGroup() as reloads:
            # there is no such signal on Windows, and none for a thread that is not the main one
            with suppress(AttributeError, NotImplementedError, RuntimeError):
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGHUP, lambda: reloads.create_task(engine.reload()))
            yield

    async def on_timeout(request: Request, error: Exception) -> Response:
        message = f"the images were not judged within {engine.settings.timeout_seconds:g} s; send fewer, or try again"
        return await error_response(request, HTTPException(504, message))

    app = FastAPI(
        title="benfourier",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # a route of our own, behind the token
        redirect_slashes=False,
        responses=DEFAULT,
    )
    app.state.engine = engine
    app.exception_handler(HTTPException)(error_response)
    app.exception_handler(TimeoutError)(on_timeout)
    # the last one added is the outermost: log, compression, limits
    app.add_middleware(RequestLimits, settings=engine.settings)
    app.add_middleware(GZipMiddleware, minimum_size=512, compresslevel=5)
    app.add_middleware(RequestLog, metrics=engine.metrics)
    _add_routes(app, engine, samples)
    return app


def _add_routes(app: FastAPI, engine: Engine, samples: Demo | None) -> None:
    """Adds all routes; the page and health need no token."""
    token, operations, access = engine.settings.token, APIRouter(), dict[str, Any]()
    if token is not None:
        access = {"dependencies": [Depends(token_check(token))], "responses": error_responses(401)}

    @operations.get("/metrics", tags=["Operations"], response_class=PlainTextResponse, responses=error_responses(503))
    async def metrics() -> Response:
        """Returns counters and gauges in the format of Prometheus."""
        return PlainTextResponse(generate_latest(engine.metrics.registry))

    @operations.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(app.openapi())

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return FileResponse(str(files("benfourier.service").joinpath("page", "index.html")))

    app.mount("/page", StaticFiles(packages=[("benfourier.service", "page")]))
    app.include_router(health_router(engine))
    demo = [] if samples is None else [demo_router(engine, samples)]
    for router in (protocol_router(engine), check_router(engine, demo=samples is not None), *demo, operations):
        app.include_router(router, **access)
