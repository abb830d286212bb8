"""Connections to providers, each used by one request at a time.

httpx's pool checks all its connections before and after each request, and makes a system call for each idle one. With
ten concurrent calls this takes a third of the time of a request; httpx's objects for request and response take another
third. The connections are httpcore's, as in httpx.
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
# httpx has an error of the same name for each error of httpcore.
_ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


def client(timeout: httpx.Timeout) -> httpx.AsyncClient:
    """The client for calls to providers. Connections are not limited: slots limit the calls, and the slow receivers of
    one site must not use up a limit. With a proxy, httpx's own pool is used.
    """
    if getproxies():
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=KEPT)
        return httpx.AsyncClient(timeout=timeout, limits=limits)
    return Client(Connections(), timeout)


class Client(httpx.AsyncClient):
    """httpx's client, with a shorter path for the built-in adapters."""

    def __init__(self, connections: Connections, timeout: httpx.Timeout) -> None:
        super().__init__(transport=connections, timeout=timeout)
        self._connections = connections
        self._always = {"accept": "*/*", "user-agent": self.headers["user-agent"]}
        self._extensions = {"timeout": timeout.as_dict()}

    @asynccontextmanager
    async def stream_raw(
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
        answer = await self._connections.send(request)
        try:
            yield answer
        finally:
            await answer.aclose()


@dataclass
class Answer(httpx.AsyncByteStream):
    """The parts of an httpx.Response that adapters need, while its body is read."""

    raw: httpcore.Response
    connections: Connections
    key: _Key
    connection: httpcore.AsyncHTTPConnection

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
            await self.connections.release(self.key, self.connection)


class Connections(httpx.AsyncBaseTransport):
    """As many connections as concurrent requests; for each address the most recently used one first."""

    def __init__(self) -> None:
        self._ssl = httpx.create_ssl_context()
        # The most recently used at the end.
        self._idle: deque[tuple[_Key, float, httpcore.AsyncHTTPConnection]] = deque()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self.send(request)
        return httpx.Response(answer.status_code, headers=answer.raw.headers, stream=answer)

    async def send(self, request: httpx.Request) -> Answer:
        url = request.url
        if url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol("expected http:// or https://", request=request)
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        # The host name for the certificate: several hosts may share an address.
        key = (url.scheme, url.host, url.port, request.extensions.get("sni_hostname"))
        connection = await self.acquire(key) or httpcore.AsyncHTTPConnection(target.origin, self._ssl, IDLE)
        try:
            with _as_httpx():
                raw = await connection.handle_async_request(
                    httpcore.Request(
                        request.method,
                        target,
                        headers=request.headers.raw,
                        content=request.stream,
                        extensions=request.extensions,
                    )
                )
        except BaseException:
            await connection.aclose()
            raise
        return Answer(raw, self, key, connection)

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop()[2].aclose()

    async def acquire(self, key: _Key) -> httpcore.AsyncHTTPConnection | None:
        """An idle connection that is still open."""
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index][0] == key:
                connection = self._idle[index][2]
                del self._idle[index]
                if not connection.has_expired():
                    return connection
                await connection.aclose()
                return await self.acquire(key)
        return None

    async def release(self, key: _Key, connection: httpcore.AsyncHTTPConnection) -> None:
        if not connection.is_available():  # its response was not read completely
            await connection.aclose()
            return
        now = monotonic()
        self._idle.append((key, now, connection))
        # Closing awaits; another request may take the last connection meanwhile.
        while self._idle and (len(self._idle) > KEPT or self._idle[0][1] < now - IDLE):
            await self._idle.popleft()[2].aclose()


@contextmanager
def _as_httpx() -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
