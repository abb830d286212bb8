"""One file of `upload_queue` → the store, verified there; its upload then continues."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import structlog

from weighbridge.model.errors import LeaseLost, RequestRefused, RetryLater
from weighbridge.model.retry import STORAGE
from weighbridge.observe import journal
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Database
from weighbridge.storage import queue, quota
from weighbridge.storage.blobs import BlobMissing
from weighbridge.storage.context import Context
from weighbridge.storage.files import sha256
from weighbridge.storage.queue import Failure, Replay

log = structlog.get_logger()

GRACE = 600  # seconds; much longer than it takes to write the row of a file


async def due(
    ctx: Context, worker: str, lease: timedelta, limit: int, *, early: bool = False
) -> list[Replay]:
    """Claim files of this machine that are due; with `early` also others, to see whether the store works again."""
    async with ctx.db.tx() as tx:
        return await queue.claim(tx, queue.ReplayClaimRequest(worker, ctx.spool.id, lease, limit, early))


async def replay(ctx: Context, waiting: Replay) -> bool:
    """Store one file, verify it, and let its upload continue. False: the store did not accept it.

    Raises only if cancelled: every failure is recorded.
    """
    try:
        file_url = await _stored(ctx, waiting)
        if file_url is not None:
            await _finish(ctx, waiting, file_url)
            await asyncio.to_thread(ctx.spool.drop, waiting.queue_id)
            journal.stored(ctx.blobs.bucket)
            journal.replayed(waiting.queue_id, "stored", waiting.retry_count + 1)
        return file_url is not None
    except LeaseLost:
        return False  # another process has the row, and the file with it
    except _NotStoreFailure:
        await _release(ctx, waiting)
        return False
    except RetryLater as failure:
        await _fail(ctx, waiting, failure.message, _pause(waiting))
        return False
    except asyncio.CancelledError:
        await _release(ctx, waiting)
        raise
    except Exception as error:
        log.exception("Bug", queue_id=str(waiting.queue_id))
        text = f"Internal error in Weighbridge ({type(error).__name__})."
        await _fail(ctx, waiting, text, _pause(waiting))
        return False


class _NotStoreFailure(Exception):
    """A failure that is not the store's: the file is released unchanged."""


async def _stored(ctx: Context, waiting: Replay) -> str | None:
    """The file_url of the file, once it is stored. None: the file does not exist."""
    path = ctx.spool.path(waiting.queue_id)
    try:
        whole = await asyncio.to_thread(sha256, path) == waiting.content_sha256
    except FileNotFoundError:
        try:
            ctx.spool.look()
        except RetryLater as failure:
            raise _NotStoreFailure from failure
        await _lost(ctx, waiting)
        return None
    if not whole:  # an operator may have the correct copy
        damaged = "The copy that waits for the store is damaged: its bytes differ from the bytes that were received."
        await _fail(ctx, replace(waiting, early=False), damaged, None)
        return None
    file_url = await ctx.blobs.put(waiting.object_path, path, keep=True)
    await _verify(ctx, waiting)
    return file_url


async def _finish(ctx: Context, waiting: Replay, file_url: str) -> None:
    try:
        async with ctx.db.fenced(waiting.lease, roles.INTAKE) as tx:
            if await queue.finish(tx, waiting, file_url) and waiting.upload_id:
                await quota.count(
                    tx, waiting.upload_id, waiting.user_id, waiting.byte_size, file_url, grant=None
                )
    except RetryLater as failure:  # a failure of the database, not of the store
        raise _NotStoreFailure from failure


async def _release(ctx: Context, waiting: Replay) -> None:
    with suppress(LeaseLost, RetryLater):  # else the lease expires
        async with ctx.db.tx() as tx:
            await queue.close_attempt(tx, waiting)


async def _verify(ctx: Context, waiting: Replay) -> None:
    """Read back what was stored: only then may the local copy be removed."""
    try:
        found = await ctx.blobs.digest(waiting.object_path)
    except BlobMissing as error:
        raise RetryLater(
            "connection", "The file store does not have the file that was just stored."
        ) from error
    if found != waiting.content_sha256:
        raise RetryLater("connection", "The file store returned different bytes than were stored.")


def _pause(waiting: Replay) -> timedelta | None:
    """The pause before the next try; None after the last. The first failure was at intake, and its pause is over."""
    return replace(STORAGE, tries=waiting.max_retries).wait(waiting.retry_count + 2)


async def _fail(ctx: Context, waiting: Replay, error: str, delay: timedelta | None) -> None:
    """Postpone the file; without a delay, give it up."""
    how = Failure(error, delay, counts=not waiting.early, consumers=ctx.general_consumers)
    with suppress(LeaseLost, RetryLater):  # else the lease expires, and the file is tried again
        async with ctx.db.tx() as tx:
            await queue.fail(tx, waiting, how)
        given_up = how.counts and delay is None
        status = "retry_failed" if given_up else "postponed"
        journal.replayed(waiting.queue_id, status, waiting.retry_count + how.counts, error)


async def _lost(ctx: Context, waiting: Replay) -> None:
    with suppress(LeaseLost, RetryLater):
        async with ctx.db.tx() as tx:
            await queue.fail_lost(tx, waiting.queue_id, waiting.lease)
        journal.replayed(waiting.queue_id, "lost", waiting.retry_count)


async def reconcile(ctx: Context) -> tuple[int, int]:
    """Make folder and table agree: how many files without a row were removed, and how many rows had lost their file.

    A file is written before its row and removed after it. So a file without a row is new, or left by a crash: its age
    decides. A row without a file has lost it, unless the row was settled after the listing; then it no longer exists.
    Raises RetryLater if the folder itself is not available.
    """
    async with ctx.db.tx() as tx:
        rows = await queue.spooled(tx, ctx.spool.id)
    there = await asyncio.to_thread(lambda: dict(ctx.spool.waiting()))
    halves = await asyncio.to_thread(lambda: list(ctx.spool.leftovers()))
    ctx.spool.look()
    unknown = [each for each in there if each not in rows]
    async with ctx.db.tx() as tx:
        # The folder may have had another identity when they arrived: it was moved or copied, or its identity was lost.
        adopted = await queue.adopt(tx, ctx.spool.id, unknown)
    orphans = [each for each in unknown if each not in adopted and there[each] > GRACE]
    for each in orphans:
        ctx.spool.drop(each)
    for path, age in halves:
        if age > GRACE:
            path.unlink(missing_ok=True)
    lost = 0
    for each in rows - there.keys():
        async with ctx.db.tx() as tx:
            if await queue.fail_lost(tx, each):
                lost += 1
                journal.replayed(each, "lost", 0)
    return len(orphans), lost


async def retry_now(db: Database, queue_id: UUID, actor: str) -> None:
    """For operators: try the file now, even if it was given up. Audited."""
    async with db.tx() as tx:
        found = await queue.retry(tx, queue_id, actor)
    if found == "unknown":
        raise _not_waiting(queue_id)
    if found == "superseded":
        message = (
            "The same content has been uploaded again since. Use that upload instead, and drop this file."
        )
        raise RequestRefused(409, "superseded", message)


async def drop(ctx: Context, queue_id: UUID, actor: str) -> None:
    """For operators: fail the upload and remove its bytes, here or by the sweep of the machine with them; audited."""
    async with ctx.db.tx() as tx:
        found = await queue.drop(tx, queue_id, actor)
    if not found:
        raise _not_waiting(queue_id)
    await asyncio.to_thread(ctx.spool.drop, queue_id)


def _not_waiting(queue_id: UUID) -> RequestRefused:
    message = f"There is no waiting file {queue_id}: it was stored or dropped. See weighbridge storage list."
    return RequestRefused(404, "unknown_queue_id", message)
