"""Beside the flow: files that wait for the store → blobs, and their uploads on their way (S5, FU-130)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from weighbridge.blobs.base import BlobMissing
from weighbridge.blobs.files import sha256
from weighbridge.db import storage
from weighbridge.db.pool import Database
from weighbridge.db.storage import Replay
from weighbridge.model.errors import LeaseLost, RequestRefused, RetryLater
from weighbridge.observe import journal
from weighbridge.steps import quota
from weighbridge.steps.announce import TOLD
from weighbridge.steps.context import Context
from weighbridge.steps.defer import pause

ROLE = "weighbridge_intake"
GRACE = 600  # seconds; far longer than the row of a file takes to come


async def due(ctx: Context, worker: str, lease: timedelta, limit: int) -> list[Replay]:
    """Claim files of this machine whose time has come."""
    async with ctx.db.tx() as tx:
        return await storage.claim(tx, worker, ctx.spool.id, lease, limit)


async def replay(ctx: Context, waiting: Replay) -> None:
    """One file to the store, verified there, and its upload set free. Never raises: what goes wrong has its verdict."""
    try:
        if not await asyncio.to_thread(_whole, ctx, waiting):
            await _lost(ctx, waiting)
            return
        file_url = await ctx.blobs.put(waiting.object_path, ctx.spool.path(waiting.queue_id), keep=True)
        await _verify(ctx, waiting)
        async with ctx.db.fenced(waiting.lease, ROLE) as tx:
            if await storage.finish(tx, waiting, file_url) and waiting.upload_id:
                await quota.count(
                    tx, waiting.upload_id, waiting.user_id, waiting.byte_size, file_url, grant=None
                )
    except LeaseLost:
        return  # another has it, and the file with it
    except RetryLater as trouble:
        await _fail(ctx, waiting, trouble.message)
        return
    except asyncio.CancelledError:
        with suppress(LeaseLost, RetryLater):
            async with ctx.db.tx() as tx:
                await storage.release(tx, waiting)
        raise
    except Exception as error:
        await _fail(ctx, waiting, f"Something went wrong inside Weighbridge ({type(error).__name__}).")
        return
    await asyncio.to_thread(ctx.spool.drop, waiting.queue_id)
    journal.stored(ctx.blobs.bucket)
    journal.replayed(waiting.queue_id, "stored", waiting.retry_count + 1)


async def _verify(ctx: Context, waiting: Replay) -> None:
    """Read back what the store has: only then may the one copy that is certain go away."""
    try:
        found = await ctx.blobs.digest(waiting.object_path)
    except BlobMissing as error:
        raise RetryLater("connection", "The file store does not have what it was given just now.") from error
    if found != waiting.content_sha256:
        raise RetryLater("connection", "The file store has other bytes than it was given just now.")


async def _fail(ctx: Context, waiting: Replay, error: str) -> None:
    failures = waiting.retry_count + 1
    # The first failure was at intake: the pause before the first retry is over.
    delay = pause(failures + 1, waiting.max_retries)
    consumers = [name for name in TOLD if name in ctx.consumers]
    with suppress(LeaseLost, RetryLater):  # the lease runs out, and it is tried again
        async with ctx.db.tx() as tx:
            await storage.fail(tx, waiting, delay, error, consumers)
        journal.replayed(waiting.queue_id, "put_off" if delay else "retry_failed", failures)


async def _lost(ctx: Context, waiting: Replay) -> None:
    with suppress(LeaseLost, RetryLater):
        async with ctx.db.tx() as tx:
            await storage.lose(tx, waiting.queue_id, waiting.lease)
        await asyncio.to_thread(ctx.spool.drop, waiting.queue_id)
        journal.replayed(waiting.queue_id, "lost", waiting.retry_count)


async def reconcile(ctx: Context) -> tuple[int, int]:
    """Folder and table agree again: how many files without a row went, and how many rows had lost their file.

    A file is there before its row, and goes after it. So a file without a row is new, or was left by a crash: its age
    tells. A row without a file has lost it, unless it was settled after we looked: then it is gone when we come to it.
    """
    async with ctx.db.tx() as tx:
        rows = await storage.spooled(tx, ctx.spool.id)
    there = await asyncio.to_thread(lambda: dict(ctx.spool.waiting()))
    halves = await asyncio.to_thread(lambda: list(ctx.spool.leftovers()))
    orphans = [each for each, age in there.items() if each not in rows and age > GRACE]
    for each in orphans:
        ctx.spool.drop(each)
    for path, age in halves:
        if age > GRACE:
            path.unlink(missing_ok=True)
    lost = 0
    for each in rows - there.keys():
        async with ctx.db.tx() as tx:
            if await storage.lose(tx, each):
                lost += 1
                journal.replayed(each, "lost", 0)
    return len(orphans), lost


async def again(db: Database, queue_id: UUID, actor: str) -> None:
    """An operator's: try it now, also where it was given up. Audited."""
    async with db.tx() as tx:
        found = await storage.retry(tx, queue_id, actor)
    if found == "gone":
        raise _not_waiting(queue_id)
    if found == "superseded":
        message = "The same content was uploaded again since; look at that upload instead, and drop this one."
        raise RequestRefused(409, "superseded", message)


async def give_up(ctx: Context, queue_id: UUID, actor: str) -> None:
    """An operator's: its upload fails and its bytes go, here or by the sweep of the machine that has them. Audited."""
    async with ctx.db.tx() as tx:
        found = await storage.drop(tx, queue_id, actor)
    if not found:
        raise _not_waiting(queue_id)
    await asyncio.to_thread(ctx.spool.drop, queue_id)


def _not_waiting(queue_id: UUID) -> RequestRefused:
    message = f"No file waits under {queue_id}. It was stored, or dropped: weighbridge storage list."
    return RequestRefused(404, "unknown_queue_id", message)


def _whole(ctx: Context, waiting: Replay) -> bool:
    """Is the file there, and the one that came?"""
    try:
        return sha256(ctx.spool.path(waiting.queue_id)) == waiting.content_sha256
    except FileNotFoundError:
        return False
