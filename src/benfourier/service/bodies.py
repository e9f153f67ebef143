"""Bodies of requests, read and unpacked within limits; bodies of answers, packed if the client likes that."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import Request

from benfourier.service import refusals
from benfourier.service.settings import Settings

WORTH = 512  # bytes from which packing an answer is worth its time
PATIENCE = 2.0  # seconds for which the rest of a refused body is read, so that its sender can hear the refusal


class Bodies:
    """All bodies that are being read; together they hold no more than the settings allow."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held = 0

    @asynccontextmanager
    async def body(self, request: Request, deadline: float) -> AsyncIterator[bytearray]:
        """Yields a body as it was sent, or raises a refusal.

        Args:
            request: whose body it is.
            deadline: on the event loop's clock.
        """
        found = bytearray()
        try:
            async with asyncio.timeout_at(deadline):
                await self._fill(found, request)
            yield found
        except TimeoutError as error:
            raise refusals.too_slow(self._settings.seconds) from error
        finally:
            self._held -= len(found)

    async def _fill(self, found: bytearray, request: Request) -> None:
        limit = self._settings.body
        stream = request.stream()
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            await _pass_over(stream, 2 * limit)
            raise refusals.too_large(f"the body has {announced} bytes; at most {limit} are allowed")
        async for chunk in stream:
            found += chunk
            self._held += len(chunk)
            if len(found) > limit:
                await _pass_over(stream, 2 * limit)
                raise refusals.too_large(f"the body has more than {limit} bytes, which are allowed")
            if self._held > self._settings.held:
                raise refusals.busy("too many large requests are being read", 1)


async def _pass_over(stream: AsyncIterator[bytes], most: int) -> None:
    """Reads what a client still sends and forgets it, for a short while: clients that write do not listen."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            async for chunk in stream:
                most -= len(chunk)
                if most < 0:
                    return


def unpacked(body: bytearray, encoding: str, limit: int) -> bytearray:
    """Returns a body without its content encoding, or raises a refusal.

    Args:
        body: as it was sent.
        encoding: the header Content-Encoding; "" for none.
        limit: bytes that may come out.
    """
    word = encoding.strip().lower()
    if word in ("", "identity"):
        return body
    if word not in ("gzip", "x-gzip", "deflate"):
        raise refusals.unsupported(f"the content encoding is {encoding!r}; allowed: gzip, deflate, identity")
    reader = zlib.decompressobj(31 if "gzip" in word else _deflate(body))
    try:
        found = reader.decompress(body, limit + 1)
    except zlib.error as error:
        raise refusals.bad(f"the body is no {word} stream ({error}); pack it again") from error
    if len(found) > limit:
        raise refusals.too_large(f"the body unpacks to more than {limit} bytes, which are allowed")
    if not reader.eof or reader.unused_data:
        raise refusals.bad(f"the {word} stream is cut short, or something follows it; pack it again")
    return bytearray(found)


def _deflate(body: bytearray) -> int:
    """How zlib is to read a deflate body: with the header that belongs there, or without, as some clients send it."""
    headed = len(body) > 1 and body[0] & 15 == 8 and (body[0] * 256 + body[1]) % 31 == 0
    return 15 if headed else -15


def packed(content: bytes, accepted: str) -> tuple[bytes, dict[str, str]]:
    """Returns an answer's content, packed if that is worth it and the header Accept-Encoding allows, and headers."""
    words = {word.strip().lower() for word in accepted.split(",")}
    if len(content) < WORTH:
        return content, {}
    if "gzip" in words:
        return gzip.compress(content, 5), {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    if "deflate" in words:
        return zlib.compress(content, 5), {"Content-Encoding": "deflate", "Vary": "Accept-Encoding"}
    return content, {}
