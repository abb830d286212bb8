"""Appends the bytes of one request to a resumable upload (tus 1.0). They are on disk before they are recorded."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from weighbridge.model.errors import RequestRefused, RetryLater
from weighbridge.postgres import roles
from weighbridge.storage import quota, resumable
from weighbridge.storage.files import disk_error
from weighbridge.storage.parts import PartialFile
from weighbridge.storage.resumable import Resumable, file_ended
from weighbridge.uploads.check_request import Request, check_sender
from weighbridge.uploads.context import Context

ALGORITHMS = ("sha1", "sha256", "md5")
_BUFFER = 1 << 20  # written in one call, in a thread
_STRIDE = 8 << 20  # bytes between two updates of the recorded offset
_SECONDS = 1.0  # seconds between two updates


@dataclass(frozen=True)
class Checksum:
    """The checksum that the sender announced for one part."""

    algorithm: str
    digest: bytes


async def append(
    ctx: Context,
    upload: Resumable,
    part: PartialFile,
    chunks: AsyncIterator[bytes],
    checksum: Checksum | None = None,
) -> Resumable:
    """Append the next bytes. If the connection breaks, the received bytes are kept; with a checksum, all or none."""
    await quota.reserve(
        ctx,
        check_sender(ctx, Request(**upload.request)),
        upload.length,
        upload.id,
        lasts=ctx.limits.resumable,
    )
    writer = _PartWriter(ctx, upload, part, checksum)
    try:
        await asyncio.to_thread(part.truncate, upload.received)
        await writer.note()  # so that it does not expire while bytes arrive
        try:
            async for chunk in chunks:
                await writer.take(chunk)
        except (OSError, RetryLater, _TooMuch, asyncio.CancelledError):
            raise
        except BaseException:
            await writer.keep()
            raise
        return await writer.end()
    except OSError as error:
        raise disk_error(error) from error


class _PartWriter:
    """Buffers bytes, writes them to the file, and records the offset after they are synced to disk."""

    def __init__(self, ctx: Context, upload: Resumable, part: PartialFile, checksum: Checksum | None) -> None:
        self._ctx = ctx
        self._upload = upload
        self._part = part
        self._checksum = checksum
        self._digest: Any = checksum and hashlib.new(checksum.algorithm, usedforsecurity=False)
        self._buffer = bytearray()
        self._written = upload.received
        self._noted_at = asyncio.get_running_loop().time()

    async def take(self, chunk: bytes) -> None:
        self._buffer += chunk
        received = self._written + len(self._buffer)
        if received > self._upload.length:
            raise _TooMuch(self._upload.length)
        if len(self._buffer) >= _BUFFER:
            await self._flush()
        late = asyncio.get_running_loop().time() - self._noted_at >= _SECONDS
        due = late or received - self._upload.received >= _STRIDE
        if due and self._digest is None and received < self._upload.length:
            await self.note()

    async def keep(self) -> None:
        """Keep the received bytes of a part whose connection broke."""
        if self._digest is None:
            await self.note()
        else:
            self._part.truncate(self._upload.received)

    async def end(self) -> Resumable:
        """End a complete part: verify its checksum and record its bytes."""
        await self._flush()
        if self._checksum is not None and self._digest.digest() != self._checksum.digest:
            self._part.truncate(self._upload.received)
            message = (
                f"Upload-Checksum: the {self._checksum.algorithm} of the received bytes is different. This part "
                "was discarded. Send it again."
            )
            raise RequestRefused(460, "checksum_mismatch", message)
        return await self.note()

    async def note(self) -> Resumable:
        """Record the received bytes: from now on they count."""
        await self._flush()
        if self._written > self._upload.received:
            await asyncio.to_thread(self._part.sync)
        lasts = self._ctx.limits.resumable
        async with self._ctx.db.tx(roles.INTAKE, self._upload.workspace_id) as tx:
            expires_at = await resumable.note_received(tx, self._upload, self._written, lasts)
        if expires_at is None:
            raise file_ended(self._upload.id)
        self._upload = replace(self._upload, received=self._written, expires_at=expires_at)
        self._noted_at = asyncio.get_running_loop().time()
        return self._upload

    async def _flush(self) -> None:
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            await asyncio.to_thread(self._write, data)
            self._written += len(data)

    def _write(self, data: bytes) -> None:
        self._part.write(data)
        if self._digest is not None:
            self._digest.update(data)


class _TooMuch(RequestRefused):
    def __init__(self, length: int) -> None:
        message = (
            f"Upload-Length: expected {length} bytes, got more. Bytes beyond the recorded offset are dropped."
        )
        super().__init__(413, "too_many_bytes", message)
