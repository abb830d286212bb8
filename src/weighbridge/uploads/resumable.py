"""Resumable uploads (tus 1.0): parts of a file → the complete file → receive.

    begin    a request that can be served, and space for its bytes    RequestRefused, before a byte is sent
    append   the next bytes, on disk before they are recorded      kept if the connection breaks (resumable_append.py)
    look     the first bytes, if they decide the pipeline           RequestRefused, before the rest is sent
    finish   all bytes: checked and recorded like any other file   once, even if a process is killed meanwhile

The received bytes are on one machine; the row records how many of them count. The worker on that machine calls
`finish_waiting` for complete files that intake could not accept at once, and `sweep` for abandoned ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from uuid import UUID, uuid4

from weighbridge.model.errors import RequestRefused, RetryLater
from weighbridge.postgres import roles
from weighbridge.storage import parts, quota, resumable
from weighbridge.storage.files import disk_error
from weighbridge.storage.parts import PartialFile, PartLocked
from weighbridge.storage.resumable import NewResumable, Refusal, Resumable, ResumableKey
from weighbridge.uploads import receive
from weighbridge.uploads.check_request import AUTO, Request, check, check_sender
from weighbridge.uploads.context import Context
from weighbridge.uploads.receive import Received
from weighbridge.uploads.recognise import HEAD, first_bytes, recognised_request


async def begin(ctx: Context, request: Request, length: int, metadata: str) -> Resumable:
    """Reserve space for a file of this length. RequestRefused as in intake, including QuotaExceeded."""
    request = replace(request, filename=receive.tidy_name(request.filename))
    checked = check_sender(ctx, request)
    receive.refuse_large(length, ctx.limits.max_upload_bytes)
    if not length:
        raise RequestRefused(422, "empty_file", "file: expected rows, got an empty file.")
    fields = {name: str(value) if isinstance(value, UUID) else value for name, value in vars(request).items()}
    new = NewResumable(uuid4(), checked.workspace_id, ctx.spool.id, fields, metadata, length)
    await quota.reserve(ctx, checked, length, new.id, lasts=ctx.limits.resumable)
    try:
        async with ctx.db.tx(roles.INTAKE, checked.workspace_id) as tx:
            expires_at = await resumable.begin(tx, new, ctx.limits.resumable)
    except BaseException:
        await quota.release(ctx, checked, new.id)
        raise
    return Resumable(**vars(new), received=0, expires_at=expires_at)


async def find(ctx: Context, workspace_id: UUID, id_: UUID, *, begun_by: UUID | None = None) -> Resumable:
    """A file of this workspace; RequestRefused if it does not exist, or no longer.

    `begun_by`: a file that another key began is treated as unknown.
    """
    async with ctx.db.tx(roles.TENANT, workspace_id) as tx:
        found = await resumable.get(tx, id_)
    if found is None or (begun_by and found.request.get("key_id") != str(begun_by)):
        raise RequestRefused(404, "unknown_file", f"There is no resumable upload {id_}. Start a new one.")
    if found.expired:
        raise RequestRefused(
            410,
            "file_expired",
            f"The file {id_} has expired: no data was received in time. Start a new upload.",
        )
    return found


@asynccontextmanager
async def locked(ctx: Context, upload: Resumable) -> AsyncIterator[tuple[Resumable, PartialFile | None]]:
    """The current progress of the file, and its locked bytes; no bytes if it has ended.

    RequestRefused if another process is writing it, another machine has it, or its bytes are lost.
    """
    if upload.spool_id != ctx.spool.id and not await _adopted(ctx, upload):
        message = (
            "The bytes of this file are on another machine. Send all requests for one file to "
            "the same machine: configure the load balancer to route by path."
        )
        raise RequestRefused(503, "other_machine", message)
    try:
        part = await asyncio.to_thread(parts.lock, ctx.spool, upload.id, make=not upload.received)
    except PartLocked:
        message = "Another request for this file is in progress. Try again in a moment."
        raise RequestRefused(423, "locked", message) from None
    except FileNotFoundError:
        upload = await find(ctx, upload.workspace_id, upload.id)
        if not upload.ended:
            raise await _lost(ctx, upload) from None
        yield upload, None
        return
    except OSError as error:
        raise disk_error(error) from error
    with part:
        try:
            upload = await find(ctx, upload.workspace_id, upload.id)
            if not upload.ended and part.size < upload.received:
                raise await _lost(ctx, upload)
        except RequestRefused:
            part.remove()
            raise
        if upload.ended:
            part.remove()
        yield upload, None if upload.ended else part


async def _adopted(ctx: Context, upload: Resumable) -> bool:
    """A load balancer that routes by path may send the first bytes to another machine than the first request."""
    if upload.received:
        return False
    async with ctx.db.tx(roles.INTAKE, upload.workspace_id) as tx:
        return await resumable.adopt(tx, upload.id, ctx.spool.id)


async def refuse_early(ctx: Context, upload: Resumable, part: PartialFile, since: int) -> None:
    """Refuse a file whose pipeline is not recognised as soon as enough bytes are received, not after its last byte."""
    if upload.request["pipeline"] == AUTO and since < HEAD <= upload.received < upload.length:
        async with _ended_by_refusal(ctx, upload, part):
            check(ctx, await _recognised_request(ctx, upload, part))


async def finish(ctx: Context, upload: Resumable, part: PartialFile) -> Received:
    """Pass a whole file to intake. A refusal is recorded and the bytes removed; a temporary failure changes nothing."""
    async with _ended_by_refusal(ctx, upload, part):
        return await _record(ctx, upload, part)
    raise AssertionError("it ends in an upload or in an error")


@asynccontextmanager
async def _ended_by_refusal(ctx: Context, upload: Resumable, part: PartialFile) -> AsyncIterator[None]:
    try:
        yield
    except RequestRefused as refusal:
        if refusal.code == "unreadable_file":  # our fault, not the sender's
            raise RetryLater("connection", f"{refusal.message} Try again later.") from refusal
        if refusal.status >= 500:
            raise
        await _refuse(ctx, upload, Refusal(refusal.status, refusal.code, refusal.message))
        await asyncio.to_thread(part.remove)
        raise
    except OSError as error:
        raise disk_error(error) from error


async def _record(ctx: Context, upload: Resumable, part: PartialFile) -> Received:
    request = await _recognised_request(ctx, upload, part)
    checked = check(ctx, request)
    link = await asyncio.to_thread(part.link)  # the store may move the file before the database fails
    try:
        file = await receive.check_file(ctx, checked, link, request.filename, upload.id)
        received = await receive.record(ctx, checked, replace(file, resumable_id=upload.id))
    finally:
        link.unlink(missing_ok=True)
    if received.duplicate:
        async with ctx.db.tx(roles.INTAKE, upload.workspace_id) as tx:
            await resumable.note_recorded(
                tx, upload.id, received.upload_id, ctx.limits.resumable, duplicate=True
            )
    await asyncio.to_thread(part.remove)
    return received


async def _recognised_request(ctx: Context, upload: Resumable, part: PartialFile) -> Request:
    request = Request(**upload.request)
    return await recognised_request(ctx, request, await asyncio.to_thread(first_bytes, part.path))


async def terminate(ctx: Context, upload: Resumable, part: PartialFile | None) -> None:
    """Forget a file that is cancelled or was refused."""
    await _forget(ctx, upload)
    if part is not None:
        await asyncio.to_thread(part.remove)


async def finish_waiting(ctx: Context) -> int:
    """Finish the files of this machine that are complete and wait for intake. Returns how many ended.

    Raises RetryLater, after the last of them, if one must keep waiting.
    """
    async with ctx.db.tx() as tx:
        waiting = await resumable.whole(tx, ctx.spool.id)
    ended, failure = 0, None
    for key in waiting:
        try:
            async with locked(ctx, await find(ctx, key.workspace_id, key.id)) as (upload, part):
                if part is not None and upload.whole:
                    await finish(ctx, upload, part)
                    ended += 1
        except RequestRefused as refusal:
            if refusal.status >= 500:
                failure = RetryLater("connection", refusal.message)
            ended += refusal.status < 500 and refusal.code != "locked"
        except RetryLater as error:
            failure = error
    if failure is not None:
        raise failure
    return ended


async def sweep(ctx: Context) -> int:
    """Remove abandoned files: expired ones, and bytes without a row. Returns how many were removed.

    Rows whose bytes are lost end as refused.
    """
    async with ctx.db.tx() as tx:
        expired = await resumable.expired(tx)
        unended = await resumable.unended(tx, ctx.spool.id)
    removed = 0
    for key in expired:
        removed += await _expire(ctx, key)
    present = set(await asyncio.to_thread(lambda: list(parts.ids(ctx.spool))))
    for id_ in present:
        removed += await _orphaned(ctx, id_)
    for key, received in unended:
        if received and key.id not in present:
            with suppress(RequestRefused):
                async with locked(ctx, await find(ctx, key.workspace_id, key.id)):
                    pass  # the refusal reports that the bytes are lost
    return removed


async def _expire(ctx: Context, key: ResumableKey) -> bool:
    async with ctx.db.tx() as tx:
        found = await resumable.get(tx, key.id)
    if found is None or not found.expired:
        return False
    try:
        with await asyncio.to_thread(parts.lock, ctx.spool, key.id) as part:
            if not await _forgotten(ctx, found):
                return False
            await asyncio.to_thread(part.remove)
            return True
    except PartLocked:
        return False
    except FileNotFoundError:
        return await _forgotten(ctx, found)


async def _forgotten(ctx: Context, upload: Resumable) -> bool:
    """The statement that removes it checks again: a part may have arrived since."""
    async with ctx.db.tx(roles.INTAKE, upload.workspace_id) as tx:
        removed = await resumable.forget_expired(tx, upload.id)
    if removed:
        await _release_quota(ctx, upload)
    return removed


async def _orphaned(ctx: Context, id_: UUID) -> bool:
    """Whether bytes belong to no row, or to one that has ended. The writer of a row's first bytes holds their lock.

    Bytes of a row that names another folder stay until it ends: this may be that folder under an older name.
    """
    if await _in_progress(ctx, id_):
        return False  # without locking it: the sender's next request would be refused
    try:
        with await asyncio.to_thread(parts.lock, ctx.spool, id_) as part:
            if not await _in_progress(ctx, id_):
                part.remove()
                return True
    except FileNotFoundError:
        parts.drop(ctx.spool, id_)
    except PartLocked:
        pass
    return False


async def _in_progress(ctx: Context, id_: UUID) -> bool:
    async with ctx.db.tx() as tx:
        row = await resumable.get(tx, id_)
    return row is not None and not row.ended


async def _forget(ctx: Context, upload: Resumable) -> None:
    async with ctx.db.tx(roles.INTAKE, upload.workspace_id) as tx:
        await resumable.forget(tx, upload.id)
    await _release_quota(ctx, upload)


async def _refuse(ctx: Context, upload: Resumable, refusal: Refusal) -> None:
    async with ctx.db.tx(roles.INTAKE, upload.workspace_id) as tx:
        await resumable.note_refused(tx, upload.id, refusal, ctx.limits.resumable)
    await _release_quota(ctx, upload)


async def _lost(ctx: Context, upload: Resumable) -> RequestRefused:
    ctx.spool.look()  # RetryLater if its disk is not mounted
    message = "The bytes of this file were lost on the machine that received them. Start a new upload."
    await _refuse(ctx, upload, Refusal(410, "bytes_lost", message))
    return RequestRefused(410, "bytes_lost", message)


async def _release_quota(ctx: Context, upload: Resumable) -> None:
    with suppress(RequestRefused):  # its pipeline no longer exists; the reservation expires
        await quota.release(ctx, check_sender(ctx, Request(**upload.request)), upload.id)
