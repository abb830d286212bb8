"""One attempt from claim to its end: parse, threshold, promote, and the consequence of each kind of failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from weighbridge.engine.write_result import write_result
from weighbridge.model.errors import LeaseLost, Refused, RetryLater, StopRequested
from weighbridge.model.retry import POLICIES
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.observe import journal
from weighbridge.postgres.transactions import Tx
from weighbridge.uploads import queue
from weighbridge.uploads.attempt import Attempt
from weighbridge.uploads.context import Context
from weighbridge.uploads.parse import parse
from weighbridge.uploads.promote import promote
from weighbridge.uploads.stored_file import pipeline_of
from weighbridge.uploads.threshold import check_threshold
from weighbridge.uploads.upsert_sql import StagingLost

log = structlog.get_logger()


async def work(attempt: Attempt, ctx: Context, *, promotes: bool) -> None:
    """Take the upload as far as this worker may. Never raises: every kind of failure has its consequence."""
    lease = attempt.lease
    try:
        if attempt.upload.status == Status.PROCESSING:
            with journal.timed("parse", attempt.upload.pipeline):
                await parse(attempt, ctx)
            attempt.upload = await _reload(attempt, ctx)
            journal.rows_counted(attempt.upload)
        await check_threshold(attempt, ctx)
        if attempt.upload.preview:
            if await _settle(attempt, ctx, lambda tx: queue.hold(tx, lease)):
                journal.put_on_hold(attempt.upload)
            return
        if not promotes:
            await _settle(attempt, ctx, lambda tx: queue.release_staged(tx, lease))
            return
        with journal.timed("promote", attempt.upload.pipeline):
            if not await promote(attempt, ctx):
                journal.waits_for_earlier_file(attempt.upload)
                return
    except StopRequested:
        if await _settle(attempt, ctx, lambda tx: queue.release(tx, lease, queue.Release())):
            journal.job_released(attempt.upload)
    except LeaseLost:
        journal.lease_lost(attempt.upload)
    except StagingLost:
        await _settle(attempt, ctx, lambda tx: queue.restage(tx, lease))
    except RetryLater as failure:
        await _retry(attempt, ctx, failure)
    except Refused as refusal:
        await _fail(attempt, ctx, refusal.code, refusal.message)
    except Exception as error:
        log.exception("Bug", source_batch_id=attempt.upload.batch)
        text = f"Internal error in Weighbridge ({type(error).__name__}). See the log for details."
        await _fail(attempt, ctx, "internal_error", text)
    else:
        with suppress(RetryLater):  # the attempt is done even if its counts cannot be reloaded
            journal.job_completed(await _reload(attempt, ctx), pipeline_of(attempt.upload, ctx).grain.name)


async def _retry(attempt: Attempt, ctx: Context, failure: RetryLater) -> None:
    """Return the upload to the queue with a delay; after the last retry, fail it."""
    lease = attempt.lease
    given_up = ""

    async def write(tx: Tx) -> None:
        nonlocal given_up
        locked = failure.kind == "lock"  # a wait for others is not a failure of this upload
        before = queue.lock_waits(tx, lease, failure.message) if locked else queue.failures(tx, lease)
        tries = await before + 1
        pause = POLICIES[failure.kind].wait(tries)
        if pause is None:
            given_up = f"{failure.message} Failed attempts: {tries}."
            await queue.fail(tx, lease, failure.kind, given_up)
        else:
            later = queue.Release(pause, failed=not locked, error=failure.message)
            await queue.release(tx, lease, later)

    if await _settle(attempt, ctx, write):
        journal.postponed(attempt.upload, failure.kind)
        if given_up:
            journal.job_failed(attempt.upload.batch, failure.kind, given_up)


async def _fail(attempt: Attempt, ctx: Context, code: str, text: str) -> None:
    if await _settle(attempt, ctx, lambda tx: queue.fail(tx, attempt.lease, code, text)):
        journal.job_failed(attempt.upload.batch, code, text)


async def _settle(attempt: Attempt, ctx: Context, write: Callable[[Tx], Awaitable[None]]) -> bool:
    """Write the end of an attempt. Retry while the database is unavailable; if it stays so, the lease expires."""
    try:
        await write_result(ctx.db, write)
    except (RetryLater, LeaseLost):
        journal.lease_lost(attempt.upload)
        return False
    return True


async def _reload(attempt: Attempt, ctx: Context) -> Upload:
    async with ctx.db.tx() as tx:
        upload = await queue.get(tx, attempt.upload.id)
    assert upload is not None
    return upload
