"""The only door to uvicorn: an application behind a socket."""

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from benfourier.errors import OptionError
from benfourier.service.settings import Settings

PATIENCE = 10.0  # seconds in which the head of a request must be there
CONNECTIONS = 1000
BACKLOG = 2048


class _Protocol(H11Protocol):
    """HTTP that does not wait for ever for the head of a request."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._timer is None:
            self._wait()
        elif not idle:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._timer = self.loop.call_later(PATIENCE, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def listening(host: str, port: int) -> socket.socket:
    """Returns a socket that listens, or raises OptionError; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle on
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        found.close()
        raise OptionError(f"{host}:{port} cannot be listened at ({error}); choose another --host or --port") from error
    return found


def serve(app: FastAPI, settings: Settings, at: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT; then no more connections are taken, and what was taken is finished."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises its signal again when it is done
    _server(app, settings).run(sockets=[at])


@contextmanager
def running(app: FastAPI, settings: Settings) -> Iterator[str]:
    """Yields the address of an application that a thread of this process serves; at the end it is shut down."""
    at = listening("127.0.0.1", 0)
    server = _server(app, settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, name="server")
    address = f"http://127.0.0.1:{at.getsockname()[1]}"
    thread.start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join()


def _server(app: FastAPI, settings: Settings) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
            backlog=BACKLOG,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=int(settings.seconds) + 5,
        )
    )
