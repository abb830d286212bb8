"""Beside the adapters: connections to providers, each with a pool of its own.

httpx's pool looks at every connection that it has for each request, and once more after it, and asks the system of each
that is idle whether it still stands. With ten calls under way that is a third of what a request takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any
from urllib.request import getproxies

import httpx

KEPT = 50  # idle ones, to all providers together
IDLE = 5.0  # seconds; then it is closed, as httpx does

_Key = tuple[str, str, int | None, object]
_One = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=IDLE)


def client(timeout: httpx.Timeout) -> httpx.AsyncClient:
    """For calls to providers. No limit of connections: slots limit the calls, and one site's slow receivers must not
    use up all of them. By a proxy httpx goes itself."""
    if getproxies():
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT)
        return httpx.AsyncClient(timeout=timeout, limits=limits)
    return Client(Lanes(), timeout)


class Client(httpx.AsyncClient):
    """httpx's, with a shorter way for the adapters of our own."""

    def __init__(self, lanes: Lanes, timeout: httpx.Timeout) -> None:
        super().__init__(transport=lanes, timeout=timeout)
        self._lanes = lanes
        self._always = {"accept": "*/*", "user-agent": self.headers["user-agent"]}
        self._extensions = {"timeout": timeout.as_dict()}

    @asynccontextmanager
    async def asked(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        extensions: Mapping[str, Any] | None = None,
        **body: Any,
    ) -> AsyncIterator[httpx.Response]:
        """As `stream`, without cookies, redirects, authentication and hooks: a third of what a request takes."""
        request = httpx.Request(
            method,
            url,
            headers={**self._always, **headers},
            extensions={**self._extensions, **(extensions or {})},
            **body,
        )
        response = await self._lanes.handle_async_request(request)
        response.request = request
        try:
            yield response
        finally:
            await response.aclose()


class Lanes(httpx.AsyncBaseTransport):
    """As many connections as there are requests under way, to each address the one that was used last."""

    def __init__(self) -> None:
        self._ssl = httpx.create_ssl_context()
        self._idle: deque[tuple[_Key, float, httpx.AsyncHTTPTransport]] = deque()  # the last used at the end

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        # The name that a certificate is asked for: an address may be that of many.
        key = (url.scheme, url.host, url.port, request.extensions.get("sni_hostname"))
        lane = self._take(key) or httpx.AsyncHTTPTransport(verify=self._ssl, limits=_One)
        try:
            response = await lane.handle_async_request(request)
        except BaseException:
            await lane.aclose()
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Stream(response.stream, lambda: self._give(key, lane))
        return response

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop()[2].aclose()

    def _take(self, key: _Key) -> httpx.AsyncHTTPTransport | None:
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place][0] == key:
                lane = self._idle[place][2]
                del self._idle[place]
                return lane
        return None

    async def _give(self, key: _Key, lane: httpx.AsyncHTTPTransport) -> None:
        now = monotonic()
        self._idle.append((key, now, lane))
        # Closing waits, and whoever comes meanwhile may take the last one.
        while self._idle and (len(self._idle) > KEPT or self._idle[0][1] < now - IDLE):
            await self._idle.popleft()[2].aclose()


class _Stream(httpx.AsyncByteStream):
    """A body; whoever closes it gives its connection back."""

    def __init__(self, body: httpx.AsyncByteStream, close: Callable[[], Awaitable[None]]) -> None:
        self._body = body
        self._close = close

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._body:
            yield part

    async def aclose(self) -> None:
        try:
            await self._body.aclose()
        finally:
            await self._close()
