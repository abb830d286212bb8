"""When the store cannot accept a file: keeps it on this machine and queues it in `upload_queue`.

The file is written before the row: a crash in between leaves a file without a row, which the sweep removes.
This module does not retry; storage/replay.py does.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

from weighbridge.model.errors import RequestRefused, RetryLater
from weighbridge.model.retry import STORAGE
from weighbridge.observe import journal
from weighbridge.postgres import roles
from weighbridge.storage import queue as storage_queue
from weighbridge.storage import resumable
from weighbridge.storage.queue import Deferral
from weighbridge.storage.quota import DEFAULT_USER
from weighbridge.uploads import queue as uploads_queue
from weighbridge.uploads.context import Context
from weighbridge.uploads.queue import Known, NewUpload


async def defer(
    ctx: Context, new: NewUpload, file: Path, key: str, failure: RetryLater, resumable_id: UUID | None = None
) -> tuple[UUID | Known, UUID]:
    """Keep the file on this machine and queue it: its upload, new or existing, and the id of the queue row.

    Raises RequestRefused(500) if the file cannot be kept; nothing is left behind then.
    """
    queue_id = uuid4()
    try:
        path = await asyncio.to_thread(ctx.spool.keep, queue_id, file)
    except (OSError, RetryLater) as error:
        raise _not_queued(ctx, error) from error
    try:
        received = await _enqueue(ctx, new, path, key, queue_id, failure, resumable_id)
    except Exception as error:
        found = await _queued(ctx, queue_id)
        if found is None:
            raise _not_queued(ctx, error) from error
        received = found
    if isinstance(received, Known):
        ctx.spool.drop(queue_id)
    else:
        journal.enqueued(queue_id, ctx.blobs.bucket, key, new.byte_size, failure.message)
    return received, queue_id


async def _enqueue(
    ctx: Context,
    new: NewUpload,
    path: Path,
    key: str,
    queue_id: UUID,
    failure: RetryLater,
    resumable_id: UUID | None,
) -> UUID | Known:
    """Record the upload and its queue row in one transaction."""
    delay = replace(STORAGE, tries=ctx.limits.storage_retries).wait(1)
    assert delay is not None
    async with ctx.db.tx(roles.INTAKE, new.workspace_id) as tx:
        received = await uploads_queue.receive(tx, replace(new, file_url=None))
        if isinstance(received, Known):
            return received
        deferral = Deferral(
            upload_id=received,
            queue_id=queue_id,
            spool_id=ctx.spool.id,
            path=str(path),
            bucket=ctx.blobs.bucket,
            object_path=key,
            user_id=new.created_by or DEFAULT_USER,
            max_retries=ctx.limits.storage_retries,
            delay=delay,
            error=failure.message,
            consumers=ctx.general_consumers,
        )
        await storage_queue.defer(tx, deferral)
        if resumable_id is not None:
            await resumable.end_as_upload(tx, resumable_id, received, ctx.limits.resumable)
    return received


async def _queued(ctx: Context, queue_id: UUID) -> UUID | None:
    """The upload of a queue row that was committed although the answer was lost; None if it was not committed.

    In the second case the file is removed. If the database is unavailable, the file stays, and the sweep decides later.
    """
    try:
        async with ctx.db.tx() as tx:
            found = await storage_queue.upload_of(tx, queue_id)
    except RetryLater:
        return None
    if found is None:
        await asyncio.to_thread(ctx.spool.drop, queue_id)
    return found


def _not_queued(ctx: Context, error: Exception) -> RequestRefused:
    match error:
        case OSError():
            reason = errno.errorcode.get(error.errno or 0, "OSError")
        case RetryLater():
            reason = error.kind
        case _:
            reason = type(error).__name__
    journal.not_enqueued(ctx.blobs.bucket, reason)
    return RequestRefused(500, "STORAGE_QUEUE_FAILED", "Unable to persist upload retry")
