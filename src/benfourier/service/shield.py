"""What every request passes: the token, security headers, the log, and no word of what went wrong inside."""

import hmac
import logging
import secrets
import time
from hashlib import sha256

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benfourier.service.logs import tell
from benfourier.service.metrics import Metrics
from benfourier.service.site import OPEN

GONE = 499  # the client left before its answer; only logs and counters see it
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")  # others are one to the counters
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Shield:
    """An application inside a shield.

    Args:
        app: the application.
        token: that requests must bear; None for none.
        metrics: are told of every request.
    """

    def __init__(self, app: ASGIApp, token: str | None, metrics: Metrics) -> None:
        self._app = app
        self._token = None if token is None else sha256(token.encode()).digest()
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, number, status = time.perf_counter(), secrets.token_hex(8), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers["X-Request-Id"] = number
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self._serve(scope, receive, sending)
        except ClientDisconnect:
            status = GONE
        except Exception:
            tell("request failed", level=logging.ERROR, trace=True, request=number)
            if not status:
                told = JSONResponse({"error": f"a fault of the server; its log tells more under {number}"}, 500)
                await told(scope, receive, sending)
        finally:
            self._note(scope, number, status, time.perf_counter() - start)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._token is None or scope["path"] in OPEN or self._bears_token(scope):
            await self._app(scope, receive, send)
            return
        told = {"error": "the bearer token is missing or wrong; send the header Authorization: Bearer TOKEN"}
        await JSONResponse(told, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)

    def _bears_token(self, scope: Scope) -> bool:
        kind, _, word = Headers(scope=scope).get("authorization", "").partition(" ")
        given = sha256(word.strip().encode()).digest()
        return hmac.compare_digest(given, self._token or b"") and kind.lower() == "bearer"

    def _note(self, scope: Scope, number: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        known = route != "other" and scope["method"] in METHODS
        self._metrics.request(scope["method"] if known else "other", route, status, seconds)
        facts = {"method": scope["method"], "path": scope["path"], "status": status, "ms": round(1000 * seconds, 1)}
        tell("request", request=number, client=(scope.get("client") or ["unknown"])[0], **facts)
