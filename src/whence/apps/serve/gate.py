"""What every request passes before it reaches a route, and every answer on its way out: hosts, token, sizes, headers, log."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from whence.apps.serve.answers import Json, error
from whence.apps.serve.settings import Settings, is_loopback

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

log = logging.getLogger("whence.apps.serve")

BODY_SECONDS = 10.0  # a request that has not been sent by then is refused
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Gate:
    """The outermost layer. It answers by itself what must not reach a route, and never lets an exception out."""

    def __init__(self, app: App, settings: Settings, drain: Callable[[], Awaitable[None]]) -> None:
        self.app, self.settings = app, settings
        self.under_way = 0
        self._drain, self._stopping = drain, False

    async def drain(self) -> None:
        """Let no more requests in, and see those under way off."""
        self._stopping = True
        await self._drain()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        begun, status = time.perf_counter(), 0
        what = f"{scope['method']} {ascii(scope['path'])[1:-1]}"  # a path may hold line ends

        async def finish(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self.headers(scope["path"])]
            await send(message)

        try:
            await self.pass_on(scope, receive, finish)
        except Exception as exception:
            log.error("%s failed: %s", what, self.told(exception))
            if not status:
                answer = error("the server made a mistake; its log says more.", "internal", 500)
                await answer(scope, receive, finish)
        finally:
            took = (time.perf_counter() - begun) * 1000
            log.info("%s %d %.0f ms", what, status, took)

    def headers(self, path: str) -> list[tuple[bytes, bytes]]:
        found = {**HEADERS, "cache-control": "no-store" if path.startswith("/api/") else "no-cache"}
        return [(name.encode(), value.encode()) for name, value in found.items()]

    def told(self, exception: Exception) -> str:
        """Where an exception came from; its words may quote a text, so they are logged only where texts are."""
        if self.settings.log_texts:
            return "".join(traceback.format_exception(exception))
        return type(exception).__name__ + "\n" + "".join(traceback.format_tb(exception.__traceback__))

    async def pass_on(self, scope: Any, receive: Receive, send: Send) -> None:
        headers = {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self.refuse(scope["path"], headers)
        if refused is not None:
            await refused(scope, receive, send)
            return
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body = await self.read(headers, receive)
        if isinstance(body, Json):
            await body(scope, receive, send)
            return
        if self.settings.log_texts:
            log.info("%s %r", scope["path"], body.decode("utf-8", "replace"))
        self.under_way += 1
        try:
            await self.app(scope, replay(body, receive), send)
        finally:
            self.under_way -= 1

    def refuse(self, path: str, headers: dict[str, str]) -> Json | None:
        """The answer to a request that must go no further; None lets it pass."""
        host = host_of(headers.get("host", ""))
        if self.settings.on_loopback and not is_loopback(host):
            # a page elsewhere whose name was made to point at this machine (DNS rebinding)
            return error(f"this server does not answer to the host {host!r}: use localhost.", "host", 400)
        origin = headers.get("origin")
        if origin is not None and place_of(origin) != headers.get("host", "").lower():
            return error("requests from pages of other origins are not answered.", "origin", 403)
        if self._stopping:
            return error(
                "the server is shutting down: ask again when it is back.", "stopping", 503, **{"retry-after": "5"}
            )
        if path.startswith("/api/") and not self.may(headers.get("authorization", "")):
            return error(
                "this server asks for its token: send the header Authorization: Bearer TOKEN.",
                "token",
                401,
                **{"www-authenticate": "Bearer"},
            )
        if path.startswith("/api/") and self.under_way >= self.settings.max_concurrent:
            return error(
                f"{self.under_way} requests are under way already: try again in a moment.",
                "busy",
                429,
                **{"retry-after": "1"},
            )
        return None

    def may(self, authorization: str) -> bool:
        if self.settings.token is None:
            return True
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode("latin-1", "replace")
        return scheme.lower() == "bearer" and hmac.compare_digest(given, self.settings.token.encode())

    async def read(self, headers: dict[str, str], receive: Receive) -> bytes | Json:
        """The whole body, or the answer to one that is too large or too slow."""
        most = self.settings.max_body
        large = error(f"the request is larger than {most:,} bytes: shorten the text.", "too-large", 413)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 15 or int(length) > most:
            return large
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    parts.append(message.get("body", b""))
                    if sum(map(len, parts)) > most:
                        return large
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            return error(f"the request was not sent within {BODY_SECONDS:.0f} seconds.", "slow", 408)


def host_of(header: str) -> str:
    """The name in a Host header, without its port.

    >>> host_of("localhost:8000"), host_of("[::1]:8000"), host_of("")
    ('localhost', '::1', '')
    """
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def place_of(origin: str) -> str | None:
    """The host and port of an Origin header; None for one that has none.

    >>> place_of("http://localhost:8000"), place_of("null"), place_of("http://[")
    ('localhost:8000', None, None)
    """
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body once, and then waits for the client to go."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
