"""First step: a request or a file in a folder → a stored blob and a pending upload.

    check            can the request be served?                 RequestRefused, before a byte is read (check_request.py)
    save_to_scratch  bytes → a scratch file, hashed as written  RequestRefused, as early as possible
    record           scratch file → blob → data_uploads         the same content again is the first upload

If one of them fails, nothing is left behind. If the store cannot accept the file, store_unavailable.py queues it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import BinaryIO
from uuid import UUID, uuid4

from weighbridge.model.errors import RequestRefused, RetryLater
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.observe import journal, traces
from weighbridge.observe.redact import quote_input
from weighbridge.postgres import roles
from weighbridge.storage import queue as storage_queue
from weighbridge.storage import quota, resumable
from weighbridge.storage.files import disk_error
from weighbridge.uploads import duplicates, recognise
from weighbridge.uploads import queue as uploads_queue
from weighbridge.uploads.check_request import AUTO, Checked, Request, check, check_sender, unknown_site
from weighbridge.uploads.context import Context
from weighbridge.uploads.duplicates import Content
from weighbridge.uploads.file_kind import accepted, empty_file, kind_of, shown_name
from weighbridge.uploads.queue import Known, NewUpload
from weighbridge.uploads.store_unavailable import defer

_BUFFER = 1 << 20  # hashed and written in one call, in a thread
_HEAD = 1 << 16  # enough to recognise the kind of a file


@dataclass(frozen=True)
class ReceivedFile:
    """A complete file on this machine's disk. The holder of this object owns the file."""

    path: Path
    filename: str | None
    kind: str
    sha256: bytes
    size: int
    grant: UUID  # of the bytes that are reserved for it (quota.py)
    resumable_id: UUID | None = None  # the resumable upload that ends with it

    def discard(self) -> None:
        _remove(self.path)


@dataclass(frozen=True)
class Received:
    """The result of intake: the upload of the file, and whether it existed already."""

    upload_id: UUID
    status: Status
    duplicate: bool
    reason: str | None = None  # why it is a duplicate: duplicate_content, duplicate_completed, …
    storage_status: str = "stored"
    queue_id: UUID | None = None  # if the file waits for the store
    unstored: RetryLater | None = None  # and why


async def receive(ctx: Context, request: Request, content: AsyncIterator[bytes] | Path) -> Received:
    """Run all of intake for one file."""
    if request.pipeline == AUTO:
        check_sender(ctx, request)
        head, content = await _beginning(content, request.filename)
        request = await recognise.recognised_request(ctx, request, head)
    checked = check(ctx, request)
    file = await save_to_scratch(ctx, checked, content, request.filename)
    try:
        return await record(ctx, checked, file)
    finally:
        file.discard()  # no effect if the store has moved the file


async def _beginning(
    content: AsyncIterator[bytes] | Path, filename: str | None
) -> tuple[bytes, AsyncIterator[bytes] | Path]:
    if not isinstance(content, Path):
        return await recognise.peeked(content)
    with _readable(filename):
        return await asyncio.to_thread(recognise.first_bytes, content), content


async def save_to_scratch(
    ctx: Context,
    checked: Checked,
    content: AsyncIterator[bytes] | Path,
    filename: str | None,
    grant: UUID | None = None,
) -> ReceivedFile:
    """Write the bytes to their own scratch file, or raise RequestRefused and leave no file."""
    try:
        ctx.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="intake-", dir=ctx.scratch)
    except OSError as error:
        raise disk_error(error) from error
    path, filename = Path(name), tidy_name(filename)
    try:
        with os.fdopen(descriptor, "wb") as file:
            writer = _ScratchWriter(file, filename, checked.pipeline, ctx.limits.max_upload_bytes)
            if isinstance(content, Path):
                await asyncio.to_thread(writer.copy, content)
            else:
                await writer.collect(content)
        return ReceivedFile(
            path, filename, writer.kind, writer.digest.digest(), writer.size, grant or uuid4()
        )
    except BaseException as error:
        _remove(path)
        if isinstance(error, OSError):
            raise disk_error(error) from error
        raise


async def check_file(
    ctx: Context, checked: Checked, path: Path, filename: str | None, grant: UUID
) -> ReceivedFile:
    """Check a complete file on this machine in its place; RequestRefused as for any other file."""
    filename = tidy_name(filename)
    with Path(os.devnull).open("wb") as nowhere:  # noqa: ASYNC230
        writer = _ScratchWriter(nowhere, filename, checked.pipeline, ctx.limits.max_upload_bytes)
        await asyncio.to_thread(writer.copy, path)
    return ReceivedFile(path, filename, writer.kind, writer.digest.digest(), writer.size, grant)


def tidy_name(filename: str | None) -> str | None:
    """The last part of a path, without control characters. Some browsers send the whole path."""
    last = (filename or "").replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable()).strip()[:255] or None


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


class _ScratchWriter:
    """Hashes and writes the bytes, and refuses the file as early as possible."""

    def __init__(self, file: BinaryIO, filename: str | None, pipeline: Pipeline, limit: int) -> None:
        self.digest = hashlib.sha256()
        self.size = 0
        self.kind = ""
        self._file = file
        self._filename = filename
        self._pipeline = pipeline
        self._limit = limit

    def copy(self, path: Path) -> None:
        buffer = memoryview(bytearray(_BUFFER))
        with _readable(self._filename):
            source = path.open("rb")
        with source:
            refuse_large(os.fstat(source.fileno()).st_size, self._limit)
            while True:
                with _readable(self._filename):
                    count = source.readinto(buffer)
                if not count:
                    break
                self._write(buffer[:count])
        self._end()

    async def collect(self, chunks: AsyncIterator[bytes]) -> None:
        buffer = bytearray()
        async for chunk in chunks:
            refuse_large(self.size + len(buffer) + len(chunk), self._limit)
            buffer += chunk
            if len(buffer) >= (_BUFFER if self.kind else _HEAD):
                await asyncio.to_thread(self._write, bytes(buffer))
                buffer.clear()
        if buffer:
            await asyncio.to_thread(self._write, bytes(buffer))
        self._end()

    def _write(self, data: bytes | memoryview) -> None:
        if not self.kind:
            kind = kind_of(bytes(data[:_HEAD]), self._filename)
            self.kind = accepted(kind, self._filename, self._pipeline)
        self.size += len(data)
        refuse_large(self.size, self._limit)
        self.digest.update(data)
        self._file.write(data)

    def _end(self) -> None:
        if not self.size:
            raise empty_file(self._filename)


@contextmanager
def _readable(filename: str | None) -> Iterator[None]:
    """An error in reading the sender's file concerns that file alone; an error in writing is ours."""
    try:
        yield
    except OSError as error:
        message = f"{shown_name(filename)}: it cannot be read: {error.strerror}."
        raise RequestRefused(422, "unreadable_file", message) from error


def refuse_large(size: int, limit: int) -> None:
    """RequestRefused(413) for a file of this size."""
    if size > limit:
        raise RequestRefused(
            413, "file_too_large", f"file: expected at most {limit // 2**20} MB, got more. Split the export."
        )


async def record(
    ctx: Context, checked: Checked, file: ReceivedFile, unstored: RetryLater | None = None
) -> Received:
    """Store the file and record the upload, unless the content is already there or exceeds the quota.

    `unstored`: the store could not accept another file of this request, and is not tried for this one.
    """
    if checked.pipeline.sites:
        await _refuse_unknown_site(ctx, checked)
    reservation_ended = False
    try:
        today, known = await _known(ctx, checked, file)
        key = f"{checked.workspace_id}/{today:%Y/%m/%d}/{file.sha256.hex()}"
        if known is not None:
            return await _known_upload_result(ctx, checked, known, file, key)
        await quota.reserve(ctx, checked, file.size, file.grant)
        received = await _store(ctx, checked, file, key, unstored)
        reservation_ended = not received.duplicate and received.queue_id is None  # its bytes were counted
        return received
    except RetryLater:
        reservation_ended = True  # the database is unavailable, so it expires
        raise
    finally:
        if not reservation_ended:
            await quota.release(ctx, checked, file.grant)


async def _refuse_unknown_site(ctx: Context, checked: Checked) -> None:
    assert checked.client_id is not None
    async with ctx.db.tx(roles.TENANT, checked.workspace_id) as tx:
        if not await uploads_queue.site_exists(tx, checked.workspace_id, checked.client_id):
            raise unknown_site(checked.client_id)


async def _known(ctx: Context, checked: Checked, file: ReceivedFile) -> tuple[date, Known | None]:
    content = Content(
        workspace_id=checked.workspace_id,
        pipeline=checked.pipeline.name,
        client_id=checked.client_id,
        platform=checked.platform,
        project_id=checked.project_id,
        content_sha256=file.sha256,
        source_batch_id=checked.source_batch_id,
        forced=checked.force,
        reading=checked.reading,
    )
    async with ctx.db.tx(roles.TENANT, checked.workspace_id) as tx:
        return await duplicates.known_upload(tx, content)


async def _store(
    ctx: Context, checked: Checked, file: ReceivedFile, key: str, unstored: RetryLater | None
) -> Received:
    new = NewUpload(
        workspace_id=checked.workspace_id,
        client_id=checked.client_id,
        platform=checked.platform,
        project_id=checked.project_id,
        source=checked.source,
        pipeline=checked.pipeline.name,
        filename=file.filename,
        file_url=None,
        file_kind=file.kind,
        content_sha256=file.sha256,
        byte_size=file.size,
        created_by=checked.created_by,
        force_partial=checked.force_partial,
        forced=checked.force,
        source_batch_id=checked.source_batch_id,
        traceparent=traces.current(),
        preview=checked.preview,
        reading=checked.reading,
        lane=checked.pipeline.lane(checked.client_id, checked.platform, checked.project_id),
    )
    received: UUID | Known
    queue_id = None
    try:
        if unstored is not None:
            raise unstored
        file_url = await ctx.blobs.put(key, file.path)
    except RetryLater as failure:
        unstored = failure
        journal.not_stored(ctx.blobs.bucket, failure.kind)
        received, queue_id = await defer(ctx, new, file.path, key, failure, file.resumable_id)
    else:
        journal.stored(ctx.blobs.bucket)
        async with ctx.db.tx(roles.INTAKE, checked.workspace_id) as tx:
            received = await uploads_queue.receive(tx, replace(new, file_url=file_url))
            if not isinstance(received, Known):
                await quota.count(tx, received, new.created_by, new.byte_size, file_url, file.grant)
                if file.resumable_id is not None:
                    await resumable.end_as_upload(tx, file.resumable_id, received, ctx.limits.resumable)
    if isinstance(received, Known):  # another request recorded the same content first
        return await _known_upload_result(ctx, checked, received, file, key)
    if queue_id is None:
        return Received(received, Status.PENDING, duplicate=False)
    return Received(
        received,
        Status.PENDING,
        duplicate=False,
        storage_status="pending_retry",
        queue_id=queue_id,
        unstored=unstored,
    )


async def _known_upload_result(
    ctx: Context, checked: Checked, known: Known, file: ReceivedFile, key: str
) -> Received:
    """A known file: its upload, or RequestRefused(409) if the batch name blocks it."""
    async with ctx.db.tx(roles.TENANT, checked.workspace_id) as tx:
        first = await uploads_queue.get(tx, known.upload_id)
    assert first is not None
    match known.reason:
        case "batch_failed":
            message = (
                f"The batch {quote_input(first.batch)} failed. To load this file again after its cause is fixed: "
                f"POST /api/uploads/{first.id}/retry, or weighbridge uploads retry {first.id}. {_release(first)}"
            )
            raise RequestRefused(409, known.reason, message)
        case "batch_differs":
            failed = first.status == Status.FAILED
            message = (
                f"The batch {quote_input(first.batch)} was loaded with other content, as upload {first.id}"
                f"{', and failed' if failed else ''}. "
                f"{_release(first) if failed else 'Give this file another batch name.'}"
            )
            raise RequestRefused(409, known.reason, message)
    async with ctx.db.tx(roles.INTAKE, checked.workspace_id) as tx:
        await duplicates.note_duplicate(tx, first.id, file.filename)
    journal.duplicate_skipped(first.batch, known.reason)
    stored = first.storage_status
    if stored == "pending_retry" and await _stored_now(ctx, first, file, key):
        stored = "stored"
    return Received(first.id, first.status, duplicate=True, reason=known.reason, storage_status=stored)


def _release(first: Upload) -> str:
    return (
        f"To load a fixed file under this name, release the name first: POST /api/uploads/{first.id}/release-batch, "
        f"or weighbridge uploads release-batch {first.id}."
    )


async def _stored_now(ctx: Context, first: Upload, file: ReceivedFile, key: str) -> bool:
    """The known upload still waits for the store, perhaps on a machine that was lost: store these bytes for it."""
    try:
        if not await asyncio.to_thread(
            file.path.exists
        ):  # another request was first, and the store has moved the file
            return False
        file_url = await ctx.blobs.put(key, file.path)
    except RetryLater as failure:
        journal.not_stored(ctx.blobs.bucket, failure.kind)
        return False
    journal.stored(ctx.blobs.bucket)
    async with ctx.db.tx(roles.INTAKE, first.workspace_id) as tx:
        if await storage_queue.store_waiting(tx, first.id, file_url):
            await quota.count(tx, first.id, first.created_by, first.byte_size, file_url, grant=None)
    return True
