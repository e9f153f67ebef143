"""The application: routes, refusals, and the service's beginning and end."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request

from benfourier import __version__
from benfourier.service import check, demo, oip, site
from benfourier.service.documents import complaints, document
from benfourier.service.judge import Origin
from benfourier.service.service import Service
from benfourier.service.settings import Settings
from benfourier.service.shield import Shield

ABOUT = "Verdicts on images: the network's label where the guard accepts, rejection of adversarial ones."

PLAIN = {
    "Not Found": "there is nothing at this address; see /openapi.json for what there is",
    "Method Not Allowed": "this address does not take this method; see the header Allow",
}


def make_app(origin: Origin, settings: Settings, samples: demo.Demo | None = None) -> FastAPI:
    """Returns the application; the guard is loaded when it is started.

    Args:
        origin: where the guard comes from.
        settings: limits and habits.
        samples: images to be attacked on the page; None for none.
    """
    service = Service(origin, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            _reload_on_hangup(service)
            yield

    app = FastAPI(
        title="benfourier",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.add_middleware(Shield, token=settings.token, metrics=service.metrics)
    app.exception_handler(HTTPException)(_refused)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    app.include_router(oip.routes(service))
    app.include_router(check.routes(service, demo=samples is not None))
    if samples is not None:
        app.include_router(demo.routes(service, samples))
    app.include_router(site.routes())

    @app.get("/metrics", tags=["Operations"], response_class=PlainTextResponse, responses=complaints(503))
    async def metrics() -> Response:
        """Counters and gauges, as Prometheus reads them."""
        return PlainTextResponse(service.metrics.text())

    return app


async def _refused(request: Request, error: Exception) -> Response:
    """A refusal in the one shape that all have."""
    assert isinstance(error, HTTPException)
    told = PLAIN.get(error.detail, error.detail)
    return JSONResponse({"error": told}, error.status_code, error.headers)


def _reload_on_hangup(service: Service) -> None:
    """Lets the signal SIGHUP load the guard's file again, where there is such a signal."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGHUP"):
        return
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[bool]]()

    def reload() -> None:
        task = loop.create_task(service.reload())
        tasks.add(task)  # the loop itself would forget it
        task.add_done_callback(tasks.discard)

    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGHUP, reload)
