"""Middleware: request log, security headers, errors without details; limits of requests; the bearer token."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benfourier.report.card import style_digest
from benfourier.service.http_errors import error_response, too_many_requests
from benfourier.service.settings import ANY_ADDRESS, ANY_HOST, Settings
from benfourier.service.telemetry import Metrics, log_count_faults, log_event

CLIENT_LEFT = 499  # the client left before its response; only logs and counters show it
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")  # the counters call all others "other"
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{0,5})?")  # address or name, and a port
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MAX_REQUESTS = 1000  # served at once
DRAIN_SECONDS = 2.0  # the rest of a refused body is read for so long: most clients read only after they have written
SECURITY_HEADERS = {
    # the page of the card has its style sheet within
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; img-src 'self' blob: data:; "
    f"style-src 'self' '{style_digest()}'; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class RequestLog:
    """Gives each request an id, security headers, a log line and a count; a fault inside becomes a plain 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, number, status = time.perf_counter(), secrets.token_hex(8), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY_HEADERS)
                headers["X-Request-Id"] = number
                # files of the page have an ETag to be asked for again
                headers.setdefault("Cache-Control", "no-cache" if "etag" in headers else "no-store")
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except ClientDisconnect:
            status = CLIENT_LEFT
        except Exception:
            log_event("request failed", level=logging.ERROR, trace=True, request=number)
            if not status:
                response = JSONResponse({"error": f"a fault of the server; its log has more under {number}"}, 500)
                await response(scope, receive, send_with_headers)
        finally:
            seconds, method = time.perf_counter() - start, scope["method"]
            route = getattr(scope.get("route"), "path", "") or scope.get("root_path") or "other"
            known = route != "other" and method in METHODS
            with log_count_faults():
                self._metrics.count_request(method if known else "other", route, status, seconds)
            fields = {"method": method, "path": scope["path"], "status": status, "ms": round(1000 * seconds, 1)}
            log_event("request", request=number, client=(scope.get("client") or ["unknown"])[0], **fields)


class RequestLimits:
    """Refuses foreign hosts and cross-site requests; bounds requests at once, and the bytes and time of a body.

    A limit that is crossed while a body is read raises HTTPException from `receive`, so that the application's handler
    gives it the one error shape. The deadline is `scope["state"]["deadline"]`, on the event loop's clock.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self.settings = settings
        self.bytes = 0  # of all bodies whose requests are being served
        self.requests = 0  # being served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            check_origin(scope["method"], headers, self.settings.hosts)
            if self.requests >= MAX_REQUESTS:
                raise HTTPException(503, f"{self.requests} requests are being served, which are all; try again")
        except HTTPException as error:
            response = await error_response(Request(scope), error)
            await response(scope, receive, send)
            return
        deadline = asyncio.get_running_loop().time() + self.settings.timeout_seconds
        scope.setdefault("state", {})["deadline"] = deadline
        length = headers.get("content-length", "")
        announced = int(length) if length.isdecimal() and length.isascii() else 0
        body = _BodyReader(self, receive, announced, deadline)
        self.requests += 1
        try:
            await self._app(scope, body.receive, send)
        finally:
            self.requests -= 1
            self.bytes -= body.size


@dataclass
class _BodyReader:
    """The body of one request, counted as it arrives."""

    limits: RequestLimits
    next_message: Receive
    announced: int  # bytes, as the head of the request says
    deadline: float
    whole: bool = False
    size: int = 0  # bytes so far

    async def receive(self) -> Message:
        """Returns the next part of the body; once it is whole, what the server says of the client."""
        if self.whole:  # the deadline no longer counts: this call waits for the client to leave
            return await self.next_message()
        settings = self.limits.settings
        limit = settings.max_body_bytes
        if self.announced > limit:
            await self._drain()
            raise HTTPException(413, f"the body has {self.announced} bytes; at most {limit} are allowed")
        try:
            async with asyncio.timeout_at(self.deadline):
                message = await self.next_message()
        except TimeoutError as error:
            reason = f"the request did not arrive within {settings.timeout_seconds:g} s; send it faster"
            raise HTTPException(408, reason) from error
        part = len(message.get("body", b""))
        self.size += part
        self.limits.bytes += part
        self.whole = message["type"] == "http.request" and not message.get("more_body", False)
        if self.size > limit:
            await self._drain()
            raise HTTPException(413, f"the body has more than {limit} bytes, which are allowed")
        if part and self.limits.bytes > settings.max_memory_bytes:
            raise too_many_requests("too many large requests are being served", 1)
        return message

    async def _drain(self) -> None:
        """Reads and drops what the client still sends, within bounds; without it some never see the 413."""
        rest = 2 * self.limits.settings.max_body_bytes
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self.whole and rest > 0:
                    message = await self.next_message()
                    rest -= len(message.get("body", b""))
                    self.whole = not message.get("more_body", False)


def check_origin(method: str, headers: Headers, hosts: tuple[str, ...]) -> None:
    """Raises 403 for a foreign Host, and for a request that changes something and comes from another site's page.

    A page of another site can post to a local service, and with DNS rebinding read its responses; programs other than
    browsers send neither Origin nor Sec-Fetch-Site.
    """
    host = headers.get("host", "")
    if not _is_allowed(host, hosts):
        allowed = ", ".join(hosts)
        raise HTTPException(
            403, f"the header Host is {host[:100]!r}; allowed: {allowed}; start the service with --allow-host"
        )
    if method in SAFE_METHODS:
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is not None:  # an older browser
        site = "same-origin" if origin.partition("://")[2].lower() == host.lower() else "cross-site"
    if site not in (None, "same-origin", "none"):
        raise HTTPException(403, "the request comes from a page of another site; use the page of this service")


def _is_allowed(host: str, hosts: tuple[str, ...]) -> bool:
    """Whether a header Host names one of the hosts; nothing may stand beside its name and port."""
    match = HOST.fullmatch(host.lower())
    name = "" if match is None else match[1] or match[2]
    if ANY_HOST in hosts or name in {allowed.lower() for allowed in hosts}:
        return True
    with suppress(ValueError):
        return ANY_ADDRESS in hosts and bool(ip_address(name))
    return False


def token_check(token: str) -> Callable[..., Coroutine[Any, Any, None]]:
    """Returns a dependency that raises 401 unless a request bears the token."""
    bearer = HTTPBearer(auto_error=False)

    async def check_token(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
        sent = "" if credentials is None else credentials.credentials.strip()
        if not secrets.compare_digest(sent.encode(), token.encode()):
            raise HTTPException(
                401, "the bearer token is missing or wrong; send the header Authorization: Bearer TOKEN"
            )

    return check_token
