"""First step: a request or a file in a folder → a stored blob and a pending upload.

    check   is the request one that we can serve?          RequestRefused, before a byte is read
    spool   bytes → a scratch file, hashed on the way      RequestRefused, as soon as it is known
    record  scratch file → blob → data_uploads             the same content again is the first upload

Nothing stays behind where one of them says no.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

from weighbridge.db import intake, uploads
from weighbridge.db.intake import Content
from weighbridge.db.uploads import Known, NewUpload
from weighbridge.formats import describe, sniff
from weighbridge.model.errors import RequestRefused, RetryLater, did_you_mean
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.states import Status
from weighbridge.observe import journal, traces
from weighbridge.observe.redact import redacted, said_back
from weighbridge.steps.context import Context

SOURCES = ("manual", "api", "webhook")
LONGEST_BATCH = 200
HIGHEST_PROJECT = 2**53 - 1  # what a JSON number can hold
_BUFFER = 1 << 20  # hashed and written at once, in a thread
_HEAD = 1 << 16  # enough to tell what a file is


@dataclass(frozen=True)
class Request:
    """What a sender says of a file, as it came (S1 §3.2)."""

    workspace_id: str | UUID
    platform: str | None = None
    source: str = "manual"
    pipeline: str = "ads"
    client_id: str | UUID | None = None
    project_id: str | int | None = None
    filename: str | None = None
    created_by: str | UUID | None = None
    force_partial: bool = False  # promote the valid rows even of a poor file
    force: bool = False  # the same content again on purpose
    source_batch_id: str | None = None  # what the sender calls its batch; names one upload (S3 §3.1)


@dataclass(frozen=True)
class Checked:
    """A request that can be served."""

    workspace_id: UUID
    client_id: UUID | None
    platform: str | None
    project_id: int | None
    source: str
    pipeline: Pipeline
    created_by: UUID | None
    force_partial: bool
    force: bool
    source_batch_id: str | None


@dataclass(frozen=True)
class Spooled:
    """A whole file in scratch, which belongs to whoever holds this."""

    path: Path
    filename: str | None
    kind: str
    sha256: bytes
    size: int

    def discard(self) -> None:
        _remove(self.path)


@dataclass(frozen=True)
class Received:
    """S1's answer: which upload the file is now, and whether it already was."""

    upload_id: UUID
    status: Status
    duplicate: bool
    reason: str | None = None  # why it is a duplicate: duplicate_content, duplicate_completed, …


async def receive(ctx: Context, request: Request, content: AsyncIterator[bytes] | Path) -> Received:
    """All of intake for one file."""
    checked = check(ctx, request)
    spooled = await spool(ctx, checked, content, request.filename)
    try:
        return await record(ctx, checked, spooled)
    finally:
        spooled.discard()  # gone already where the store moved it away


def check(ctx: Context, request: Request) -> Checked:
    """The request in our own terms, or RequestRefused with what is wrong with it."""
    workspace_id = uuid_of(request.workspace_id, "workspace", "workspace_id")
    assert workspace_id is not None
    pipeline = ctx.pipelines.get(request.pipeline)
    if pipeline is None:
        known = sorted(ctx.pipelines)
        raise _unprocessable("pipeline", request.pipeline, known)
    if request.source not in SOURCES:
        raise _unprocessable("source", request.source, SOURCES)
    return Checked(
        workspace_id=workspace_id,
        client_id=_client(pipeline, request.client_id),
        platform=_platform(pipeline, request.platform or None),
        project_id=_project(pipeline, request.project_id),
        source=request.source,
        pipeline=pipeline,
        created_by=uuid_of(request.created_by, "creator", "created_by") if request.created_by else None,
        force_partial=request.force_partial,
        force=request.force,
        source_batch_id=_batch(request.source_batch_id),
    )


def _batch(name: str | None) -> str | None:
    if not name:
        return None
    if len(name) > LONGEST_BATCH or not name.isprintable():
        message = (
            f"source_batch_id: expected up to {LONGEST_BATCH} printable characters, got {said_back(name)}."
        )
        raise RequestRefused(422, "invalid_batch", message)
    if redacted(name) != name:
        message = (
            f"source_batch_id: expected a name that may be logged, got {said_back(name)}. "
            "Logs and alerts name batches: leave out what identifies a person or opens a door."
        )
        raise RequestRefused(422, "invalid_batch", message)
    return name


def uuid_of(value: str | UUID, code: str, name: str) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except ValueError:
        message = (
            f"{name}: expected a UUID such as 7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b, got {said_back(value)}."
        )
        raise RequestRefused(422, f"invalid_{code}", message) from None


def _platform(pipeline: Pipeline, platform: str | None) -> str | None:
    known = [profile.name for profile in pipeline.profiles]
    if platform is None:
        if "platform" in pipeline.scope:
            raise RequestRefused(
                422, "unknown_platform", f"platform: expected one of {', '.join(known)}, got none."
            )
        return None
    if not known:
        raise RequestRefused(
            422, "unknown_platform", f"platform: the pipeline {pipeline.name} has no platforms; leave it out."
        )
    if platform not in known:
        raise _unprocessable("platform", platform, known)
    return platform


def _client(pipeline: Pipeline, value: str | UUID | None) -> UUID | None:
    if not value:
        return None
    if "project_id" in pipeline.scope and "client_id" not in pipeline.scope:
        # With it the same content would be another job of the same project.
        message = f"client_id: files of the pipeline {pipeline.name} belong to a project; leave it out."
        raise RequestRefused(422, "invalid_client", message)
    return uuid_of(value, "client", "client_id")


def _project(pipeline: Pipeline, value: str | int | None) -> int | None:
    if "project_id" not in pipeline.scope:
        if value not in (None, ""):
            message = f"project_id: the pipeline {pipeline.name} has no projects; leave it out."
            raise RequestRefused(422, "invalid_project", message)
        return None
    if value in (None, ""):
        message = "project_id: expected the number of the project that the file belongs to, got none."
        raise RequestRefused(422, "invalid_project", message)
    return project_number(value)


def project_number(value: str | int | None) -> int:
    """The number of a project; its first file, or weighbridge projects create, makes it one."""
    text = str(value).strip()
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(HIGHEST_PROJECT)) else 0
    if not 1 <= number <= HIGHEST_PROJECT:
        message = f"project_id: expected a whole number from 1 to {HIGHEST_PROJECT}, got {said_back(text)}."
        raise RequestRefused(422, "invalid_project", message)
    return number


async def spool(
    ctx: Context, checked: Checked, content: AsyncIterator[bytes] | Path, filename: str | None
) -> Spooled:
    """The bytes in a scratch file of their own, or RequestRefused and no file."""
    try:
        ctx.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix="intake-", dir=ctx.scratch)
    except OSError as error:
        raise _no_room(error) from error
    path, filename = Path(name), tidy_name(filename)
    try:
        with os.fdopen(descriptor, "wb") as file:
            spooler = _Spooler(file, filename, checked.pipeline, ctx.limits.max_upload_bytes)
            if isinstance(content, Path):
                await asyncio.to_thread(spooler.copy, content)
            else:
                await spooler.collect(content)
        return Spooled(path, filename, spooler.kind, spooler.digest.digest(), spooler.size)
    except BaseException as error:
        _remove(path)
        if isinstance(error, OSError):
            raise _no_room(error) from error
        raise


def tidy_name(filename: str | None) -> str | None:
    """The last part of a path, without what no name should have; some browsers send the whole path."""
    last = (filename or "").replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable()).strip()[:255] or None


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


class _Spooler:
    """Hashes and writes what passes, and says no as soon as it is known."""

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
            self.kind = _kind(bytes(data[:_HEAD]), self._filename, self._pipeline)
        self.size += len(data)
        refuse_large(self.size, self._limit)
        self.digest.update(data)
        self._file.write(data)

    def _end(self) -> None:
        if not self.size:
            raise _empty(self._filename)


@contextmanager
def _readable(filename: str | None) -> Iterator[None]:
    """Trouble with the sender's own file is about that file alone; trouble in writing is ours."""
    try:
        yield
    except OSError as error:
        named = f" ({said_back(filename)})" if filename else ""
        message = f"file{named}: it cannot be read: {error.strerror}."
        raise RequestRefused(422, "unreadable_file", message) from error


def refuse_large(size: int, limit: int) -> None:
    """RequestRefused(413) for a file of this size."""
    if size > limit:
        raise RequestRefused(
            413, "file_too_large", f"file: expected at most {limit // 2**20} MB, got more. Split the export."
        )


def _kind(head: bytes, filename: str | None, pipeline: Pipeline) -> str:
    kind = sniff(head, filename)
    named = f" ({said_back(filename)})" if filename else ""
    if kind is None:
        what = describe(head)
        if not what:
            raise _empty(filename)
        message = f"file{named}: expected CSV or JSON, got {what}"
        raise RequestRefused(415, "unsupported_format", message)
    if kind not in pipeline.accepts:
        accepted = " or ".join(each.upper() for each in pipeline.accepts)
        message = f"file{named}: the pipeline {pipeline.name} expects {accepted}, got {kind.upper()}."
        raise RequestRefused(415, "unsupported_format", message)
    return kind


async def record(ctx: Context, checked: Checked, spooled: Spooled) -> Received:
    """Store the file and note the upload, unless the content is already there."""
    content = Content(
        workspace_id=checked.workspace_id,
        pipeline=checked.pipeline.name,
        client_id=checked.client_id,
        platform=checked.platform,
        project_id=checked.project_id,
        content_sha256=spooled.sha256,
        source_batch_id=checked.source_batch_id,
        forced=checked.force,
    )
    async with ctx.db.tx("weighbridge_tenant", checked.workspace_id) as tx:
        today, known = await intake.known_upload(tx, content)
    if known is not None:
        return await _again(ctx, checked, known, spooled.filename)
    key = f"{checked.workspace_id}/{today:%Y/%m/%d}/{spooled.sha256.hex()}"
    new = NewUpload(
        workspace_id=checked.workspace_id,
        client_id=checked.client_id,
        platform=checked.platform,
        project_id=checked.project_id,
        source=checked.source,
        pipeline=checked.pipeline.name,
        filename=spooled.filename,
        file_url=await ctx.blobs.put(key, spooled.path),
        file_kind=spooled.kind,
        content_sha256=spooled.sha256,
        byte_size=spooled.size,
        created_by=checked.created_by,
        force_partial=checked.force_partial,
        forced=checked.force,
        source_batch_id=checked.source_batch_id,
        traceparent=traces.current(),
    )
    async with ctx.db.tx("weighbridge_intake", checked.workspace_id) as tx:
        received = await uploads.receive(tx, new)
    if isinstance(received, Known):
        return await _again(
            ctx, checked, received, spooled.filename
        )  # another sender of the same was quicker
    return Received(received, Status.PENDING, duplicate=False)


async def _again(ctx: Context, checked: Checked, known: Known, filename: str | None) -> Received:
    """A file that is here already: its upload, or RequestRefused(409) where its batch is in the way (S3 §1.3)."""
    async with ctx.db.tx("weighbridge_tenant", checked.workspace_id) as tx:
        first = await uploads.get(tx, known.upload_id)
    assert first is not None
    match known.reason:
        case "batch_failed":
            message = (
                f"The batch {said_back(first.batch)} failed. Mend what is wrong, then open it again: "
                f"POST /api/uploads/{first.id}/retry, or weighbridge uploads retry {first.id}."
            )
            raise RequestRefused(409, known.reason, message)
        case "batch_differs":
            message = (
                f"The batch {said_back(first.batch)} is here with other content, as upload {first.id}. "
                "Give these rows a batch of their own."
            )
            raise RequestRefused(409, known.reason, message)
    async with ctx.db.tx("weighbridge_intake", checked.workspace_id) as tx:
        await intake.note_duplicate(tx, first.id, filename)
    journal.duplicate_skipped(first.batch, known.reason)
    return Received(first.id, first.status, duplicate=True, reason=known.reason)


def _unprocessable(name: str, value: str, known: list[str] | tuple[str, ...]) -> RequestRefused:
    hint = did_you_mean(value, known) or "."
    message = f"{name}: expected one of {', '.join(known)}, got {said_back(value)}{hint}"
    return RequestRefused(422, f"unknown_{name}", message)


def _empty(filename: str | None) -> RequestRefused:
    named = f" ({said_back(filename)})" if filename else ""
    return RequestRefused(422, "empty_file", f"file{named}: expected rows, got an empty file.")


def _no_room(error: OSError) -> RetryLater:
    return RetryLater("connection", f"The file cannot be taken now: {error.strerror}. Try again later.")
