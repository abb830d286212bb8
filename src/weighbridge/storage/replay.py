"""One file of `upload_queue` → the store, verified there; its upload then continues."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import structlog

from weighbridge.engine.announce import TOLD
from weighbridge.model.errors import LeaseLost, RequestRefused, RetryLater
from weighbridge.model.retry import storage_pause
from weighbridge.observe import journal
from weighbridge.postgres.pool import Database
from weighbridge.storage import queue, quota
from weighbridge.storage.blobs import BlobMissing
from weighbridge.storage.context import Context
from weighbridge.storage.files import sha256
from weighbridge.storage.queue import Failure, Replay

log = structlog.get_logger()

ROLE = "weighbridge_intake"
GRACE = 600  # seconds; far longer than the row of a file takes to come


async def due(
    ctx: Context, worker: str, lease: timedelta, limit: int, *, early: bool = False
) -> list[Replay]:
    """Claim files of this machine whose time has come; `early`: or has not, to see whether the store is back."""
    async with ctx.db.tx() as tx:
        return await queue.claim(tx, queue.Claim(worker, ctx.spool.id, lease, limit, early))


async def replay(ctx: Context, waiting: Replay) -> bool:
    """One file to the store, verified there, and its upload set free. False: the store did not take it.

    Never raises but when it is cancelled: what goes wrong has its verdict.
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
        return False  # another has it, and the file with it
    except _NotNow:
        await _release(ctx, waiting)
        return False
    except RetryLater as trouble:
        await _fail(
            ctx, waiting, trouble.message, storage_pause(waiting.retry_count + 2, waiting.max_retries)
        )
        return False
    except asyncio.CancelledError:
        await _release(ctx, waiting)
        raise
    except Exception as error:
        log.exception("Bug", queue_id=str(waiting.queue_id))
        told = f"Something went wrong inside Weighbridge ({type(error).__name__})."
        await _fail(ctx, waiting, told, storage_pause(waiting.retry_count + 2, waiting.max_retries))
        return False


class _NotNow(Exception):
    """Nothing that the store could do anything about: it is handed back as it is."""


async def _stored(ctx: Context, waiting: Replay) -> str | None:
    """The file_url of the file, once the store has it. None: there is no such file to store."""
    path = ctx.spool.path(waiting.queue_id)
    try:
        whole = await asyncio.to_thread(sha256, path) == waiting.content_sha256
    except FileNotFoundError:
        try:
            ctx.spool.look()
        except RetryLater as trouble:
            raise _NotNow from trouble
        await _lost(ctx, waiting)
        return None
    if not whole:  # an operator may know why, and have the right one
        damaged = "The copy that waits for the store is damaged: its bytes are not those that came."
        await _fail(ctx, replace(waiting, early=False), damaged, None)
        return None
    file_url = await ctx.blobs.put(waiting.object_path, path, keep=True)
    await _verify(ctx, waiting)
    return file_url


async def _finish(ctx: Context, waiting: Replay, file_url: str) -> None:
    try:
        async with ctx.db.fenced(waiting.lease, ROLE) as tx:
            if await queue.finish(tx, waiting, file_url) and waiting.upload_id:
                await quota.count(
                    tx, waiting.upload_id, waiting.user_id, waiting.byte_size, file_url, grant=None
                )
    except RetryLater as trouble:  # the database's, not the store's
        raise _NotNow from trouble


async def _release(ctx: Context, waiting: Replay) -> None:
    with suppress(LeaseLost, RetryLater):  # the lease runs out
        async with ctx.db.tx() as tx:
            await queue.release(tx, waiting)


async def _verify(ctx: Context, waiting: Replay) -> None:
    """Read back what the store has: only then may the one copy that is certain go away."""
    try:
        found = await ctx.blobs.digest(waiting.object_path)
    except BlobMissing as error:
        raise RetryLater("connection", "The file store does not have what it was given just now.") from error
    if found != waiting.content_sha256:
        raise RetryLater("connection", "The file store has other bytes than it was given just now.")


async def _fail(ctx: Context, waiting: Replay, error: str, delay: timedelta | None) -> None:
    """Put off, or given up without a delay. The first failure was at intake: its pause is over."""
    consumers = [name for name in TOLD if name in ctx.consumers]
    how = Failure(error, delay, counts=not waiting.early, consumers=consumers)
    with suppress(LeaseLost, RetryLater):  # the lease runs out, and it is tried again
        async with ctx.db.tx() as tx:
            await queue.fail(tx, waiting, how)
        given_up = how.counts and delay is None
        status = "retry_failed" if given_up else "put_off"
        journal.replayed(waiting.queue_id, status, waiting.retry_count + how.counts, error)


async def _lost(ctx: Context, waiting: Replay) -> None:
    with suppress(LeaseLost, RetryLater):
        async with ctx.db.tx() as tx:
            await queue.lose(tx, waiting.queue_id, waiting.lease)
        journal.replayed(waiting.queue_id, "lost", waiting.retry_count)


async def reconcile(ctx: Context) -> tuple[int, int]:
    """Folder and table agree again: how many files without a row went, and how many rows had lost their file.

    A file is there before its row, and goes after it. So a file without a row is new, or was left by a crash: its age
    tells. A row without a file has lost it, unless it was settled after we looked: then it is gone when we come to it.
    Raises RetryLater where the folder itself is away.
    """
    async with ctx.db.tx() as tx:
        rows = await queue.spooled(tx, ctx.spool.id)
    there = await asyncio.to_thread(lambda: dict(ctx.spool.waiting()))
    halves = await asyncio.to_thread(lambda: list(ctx.spool.leftovers()))
    ctx.spool.look()
    unknown = [each for each in there if each not in rows]
    async with ctx.db.tx() as tx:
        # The folder may have been called otherwise when they came: moved, copied, or its name was lost.
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
            if await queue.lose(tx, each):
                lost += 1
                journal.replayed(each, "lost", 0)
    return len(orphans), lost


async def again(db: Database, queue_id: UUID, actor: str) -> None:
    """An operator's: try it now, also where it was given up. Audited."""
    async with db.tx() as tx:
        found = await queue.retry(tx, queue_id, actor)
    if found == "gone":
        raise _not_waiting(queue_id)
    if found == "superseded":
        message = "The same content was uploaded again since; look at that upload instead, and drop this one."
        raise RequestRefused(409, "superseded", message)


async def give_up(ctx: Context, queue_id: UUID, actor: str) -> None:
    """An operator's: its upload fails and its bytes go, here or by the sweep of the machine that has them. Audited."""
    async with ctx.db.tx() as tx:
        found = await queue.drop(tx, queue_id, actor)
    if not found:
        raise _not_waiting(queue_id)
    await asyncio.to_thread(ctx.spool.drop, queue_id)


def _not_waiting(queue_id: UUID) -> RequestRefused:
    message = f"No file waits under {queue_id}. It was stored, or dropped: weighbridge storage list."
    return RequestRefused(404, "unknown_queue_id", message)
