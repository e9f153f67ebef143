"""The server: uvicorn behind a socket, with a timeout for heads of requests and a graceful end."""

import asyncio
import logging
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import h11
import torch
import uvicorn
from fastapi import FastAPI
from PIL import PngImagePlugin
from torch import nn
from uvicorn.protocols.http.h11_impl import H11Protocol

from benfourier.errors import OptionError, check_choice, check_threads
from benfourier.models.classifier import Classifier
from benfourier.service.app import make_app
from benfourier.service.demo import load_demo
from benfourier.service.engine import Engine, GuardFile
from benfourier.service.middleware import SECURITY_HEADERS
from benfourier.service.settings import Settings, allowed_hosts
from benfourier.service.telemetry import CONNECTIONS, configure_logging, log_event

if sys.platform != "win32":
    import resource

HEAD_SECONDS = 10.0  # time for the head of a request; uvicorn has no limit of its own
KEEP_ALIVE_SECONDS = 30
MOST_CONNECTIONS = 2000  # open at once; half of the descriptors that the process may have, if that is less
MOST_BACKLOG = 128  # the event loop takes as many connections at once, some turns before it can close one
TEXT_BYTES = 2**20  # of a PNG file, unpacked; Pillow's own limit is 64 MiB, and it takes several times as much
LOG_LEVELS = ("debug", "info", "warning", "error")


def serve(
    path: str | PathLike[str],
    module: nn.Module,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    allow_hosts: Sequence[str] = (),
    second: nn.Module | Classifier | None = None,
    false_alarm_rate: float | None = None,
    demo: str | None = None,
    log_level: str = "info",
    threads: int | None = None,
    **settings: Any,
) -> None:
    """Serves a guard over HTTP until SIGTERM or SIGINT, in this process.

    Args:
        path: the file that `Guard.save` wrote; SIGHUP loads it again.
        module: the guarded network.
        host: address to listen at; "0.0.0.0" for all.
        port: to listen at; 0 chooses a free one, which the log names.
        allow_hosts: further names that requests may give in the header Host.
        second: the other network of `second-opinion`, for its architecture.
        false_alarm_rate: another one than the file's.
        demo: a source of samples to attack on the page, such as "mnist-5k"; None for none.
        log_level: "debug", "info", "warning" or "error".
        threads: that torch may use; None leaves them as they are.
        settings: fields of `benfourier.service.settings.Settings`, such as max_images=64.
    """
    check_choice("log level", log_level, LOG_LEVELS)
    if threads is not None:
        torch.set_num_threads(check_threads(threads))
    limits = Settings(**settings, hosts=allowed_hosts(host, tuple(allow_hosts)))
    engine = Engine(GuardFile(Path(path), module, false_alarm_rate, second), limits)
    samples = None if demo is None else load_demo(demo, engine.current.guard.classifier)
    listener = open_socket(host, port)
    configure_logging(log_level)
    PngImagePlugin.MAX_TEXT_MEMORY = TEXT_BYTES
    shown = f"[{host}]" if ":" in host else host
    log_event("listening", address=f"http://{shown}:{listener.getsockname()[1]}", guard=str(path), demo=demo)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises its signal again when it is done
    make_server(make_app(engine, samples), limits).run(sockets=[listener])


class _Protocol(H11Protocol):
    """HTTP/1.1 that closes connections whose request head does not arrive in time, and whose errors have one shape."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        limit = connection_limit()
        if len(self.connections) > limit:
            log_event("too many connections", logger=CONNECTIONS, level=logging.WARNING, limit=limit)
            transport.abort()
            return
        self._set_timer(waits=True)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_timer(waits=self.cycle is None or self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_timer(waits=False)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP, and closes the connection. No application sees it: uvicorn has words of its own."""
        number = secrets.token_hex(8)
        log_event("no HTTP", request=number, client=(self.client or ["unknown"])[0], status=400)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else a response is under way, and is cut off
            content = b'{"error":"this is no HTTP/1.1 request; check its first line, its headers and its lengths"}'
            headers = {**SECURITY_HEADERS, "X-Request-Id": number, "Content-Type": "application/json"}
            headers |= {"Content-Length": str(len(content)), "Cache-Control": "no-store", "Connection": "close"}
            response = h11.Response(status_code=400, headers=list(headers.items()), reason=b"Bad Request")
            for event in (response, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _set_timer(self, *, waits: bool) -> None:
        """Starts the timer, or lets it run, while the head of a request is to come; else stops it."""
        if waits and self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)
        elif not waits and self._timer is not None:
            self._timer.cancel()
            self._timer = None


def connection_limit() -> int:
    """Returns how many connections may be open at once; further ones are closed."""
    return min(MOST_CONNECTIONS, _descriptors() // 2)


def backlog() -> int:
    """Returns how many connections may wait to be taken; few enough for the descriptors left by those that are open."""
    return max(1, min(MOST_BACKLOG, _descriptors() // 16))


def _descriptors() -> int:
    """Descriptors that the process may have."""
    if sys.platform == "win32":  # which has no such limit
        return 2 * MOST_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2 * MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else soft


def open_socket(host: str, port: int) -> socket.socket:
    """Returns a socket that listens, or raises OptionError; port 0 chooses a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only if the protocol is named
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog())
    except (OSError, OverflowError, TypeError, ValueError) as error:  # the last two: no name that can be looked up
        listener.close()
        place = f"{host if host.isprintable() else repr(host)}:{port}"
        raise OptionError(f"cannot listen at {place} ({error}); choose another --host or --port") from error
    return listener


def make_server(app: FastAPI, settings: Settings) -> uvicorn.Server:
    """Returns a uvicorn server for the application."""
    config = uvicorn.Config(
        app,
        http=_Protocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=backlog(),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(settings.timeout_seconds) + 5,
    )
    return uvicorn.Server(config)
