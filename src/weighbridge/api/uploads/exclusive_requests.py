"""One request at a time for each resumable upload; a newer request ends the older one.

A client notices a broken connection before the server does, and reconnects while the server still waits for
bytes on the old connection. Requests in other processes are refused by the lock on the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from weighbridge.model.errors import RequestRefused

_END_TIMEOUT = 5.0  # seconds for the older request to end: it may be in intake


class ExclusiveRequest:
    """The only request that may change a resumable upload, until it ends."""

    def __init__(self) -> None:
        self.interrupted = False
        self.ended = asyncio.Event()
        self._waiting: asyncio.Timeout | None = None

    def interrupt(self) -> None:
        self.interrupted = True
        if self._waiting is not None:
            with suppress(RuntimeError):  # it has just ended
                self._waiting.reschedule(0)

    async def next(self, stream: AsyncIterator[bytes], seconds: float) -> bytes | None:
        """The next bytes, None at the end. RequestRefused if no bytes arrive or a newer request has taken over."""
        if self.interrupted:
            raise self._refusal()
        try:
            async with asyncio.timeout(seconds) as self._waiting:
                return await anext(stream)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            if self.interrupted:
                raise self._refusal() from None
            message = f"No data received for {seconds:g} seconds. Received bytes are kept: get the offset and continue."
            # Not 408: common clients do not retry after 4xx errors of this kind, but this client should.
            raise RequestRefused(503, "sender_silent", message) from None
        finally:
            self._waiting = None

    def _refusal(self) -> RequestRefused:
        message = "A newer request for this file arrived, or the server is stopping. Received bytes are kept."
        return RequestRefused(409, "interrupted", message)


class ExclusiveRequests:
    """Those in progress in this process, by upload."""

    def __init__(self) -> None:
        self._open: dict[UUID, ExclusiveRequest] = {}

    @asynccontextmanager
    async def enter(self, id_: UUID) -> AsyncIterator[ExclusiveRequest]:
        """RequestRefused(423) if the older request does not end in time."""
        try:
            async with asyncio.timeout(_END_TIMEOUT):
                while (older := self._open.get(id_)) is not None:
                    older.interrupt()
                    await older.ended.wait()
        except TimeoutError:
            message = "Another request for this file is in progress. Try again in a moment."
            raise RequestRefused(423, "locked", message) from None
        request = self._open[id_] = ExclusiveRequest()
        try:
            yield request
        finally:
            del self._open[id_]
            request.ended.set()

    @asynccontextmanager
    async def running(self, stop: asyncio.Event | None) -> AsyncIterator[None]:
        """When stopping, end all requests: received bytes are recorded, and clients continue with the next process."""

        async def watch(stop: asyncio.Event) -> None:
            await stop.wait()
            for request in self._open.values():
                request.interrupt()

        watching = asyncio.create_task(watch(stop)) if stop is not None else None
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
