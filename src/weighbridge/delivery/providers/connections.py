"""Beside the adapters: connections to providers, each used by one request at a time.

httpx's pool looks at every connection that it has for each request, and once more after it, and asks the system of each
that is idle whether it still stands. With ten calls under way that is a third of what a request takes. What httpx puts
around a request and its answer is another third. Connections are httpcore's, as httpx's are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import Any
from urllib.request import getproxies

import httpcore
import httpx

KEPT = 50  # idle ones, to all providers together
IDLE = 5.0  # seconds; then it is closed, as httpx does

_Key = tuple[str, str, int | None, object]
# Of each of httpcore's errors httpx has one of the same name.
_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


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
    ) -> AsyncIterator[Answer]:
        """As `stream`, without cookies, redirects, authentication and hooks."""
        request = httpx.Request(
            method,
            url,
            headers={**self._always, **headers},
            extensions={**self._extensions, **(extensions or {})},
            **body,
        )
        answer = await self._lanes.send(request)
        try:
            yield answer
        finally:
            await answer.aclose()


@dataclass
class Answer(httpx.AsyncByteStream):
    """The parts of an httpx.Response that adapters need, while its body comes."""

    raw: httpcore.Response
    lanes: Lanes
    key: _Key
    lane: httpcore.AsyncHTTPConnection

    @property
    def status_code(self) -> int:
        return self.raw.status

    @cached_property
    def headers(self) -> httpx.Headers:
        return httpx.Headers(self.raw.headers)

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        with _as_httpx():
            async for part in self.raw.aiter_stream():
                yield part

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.aiter_bytes()

    async def aclose(self) -> None:
        """Closing the response returns its connection."""
        try:
            with _as_httpx():
                await self.raw.aclose()
        finally:
            await self.lanes.give(self.key, self.lane)


class Lanes(httpx.AsyncBaseTransport):
    """As many connections as there are requests under way, to each address the one that was used last."""

    def __init__(self) -> None:
        self._ssl = httpx.create_ssl_context()
        # The last used at the end.
        self._idle: deque[tuple[_Key, float, httpcore.AsyncHTTPConnection]] = deque()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self.send(request)
        return httpx.Response(answer.status_code, headers=answer.raw.headers, stream=answer)

    async def send(self, request: httpx.Request) -> Answer:
        url = request.url
        if url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol("expected http:// or https://", request=request)
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        # The name that a certificate is asked for: an address may be that of many.
        key = (url.scheme, url.host, url.port, request.extensions.get("sni_hostname"))
        lane = await self.take(key) or httpcore.AsyncHTTPConnection(target.origin, self._ssl, IDLE)
        try:
            with _as_httpx():
                raw = await lane.handle_async_request(
                    httpcore.Request(
                        request.method,
                        target,
                        headers=request.headers.raw,
                        content=request.stream,
                        extensions=request.extensions,
                    )
                )
        except BaseException:
            await lane.aclose()
            raise
        return Answer(raw, self, key, lane)

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop()[2].aclose()

    async def take(self, key: _Key) -> httpcore.AsyncHTTPConnection | None:
        """An idle connection that is still open."""
        for place in range(len(self._idle) - 1, -1, -1):
            if self._idle[place][0] == key:
                lane = self._idle[place][2]
                del self._idle[place]
                if not lane.has_expired():
                    return lane
                await lane.aclose()
                return await self.take(key)
        return None

    async def give(self, key: _Key, lane: httpcore.AsyncHTTPConnection) -> None:
        if not lane.is_available():  # its answer was not read to the end
            await lane.aclose()
            return
        now = monotonic()
        self._idle.append((key, now, lane))
        # Closing awaits; another request may take the last connection meanwhile.
        while self._idle and (len(self._idle) > KEPT or self._idle[0][1] < now - IDLE):
            await self._idle.popleft()[2].aclose()


@contextmanager
def _as_httpx() -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
