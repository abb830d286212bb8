"""One attempt from claim to verdict: the steps in order, and what each way of failing means."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from weighbridge.db import uploads
from weighbridge.db.pool import Tx
from weighbridge.db.production import StagingGone
from weighbridge.model.backoff import POLICIES
from weighbridge.model.errors import HandBack, LeaseLost, Refused, RetryLater
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.steps.attempt import Attempt
from weighbridge.steps.context import Context
from weighbridge.steps.parse import parse, pipeline_of
from weighbridge.steps.promote import judge, promote

log = structlog.get_logger()


async def work(attempt: Attempt, ctx: Context, *, promotes: bool) -> None:
    """Take the upload as far as this worker may. Never raises: every way of failing has its verdict."""
    lease = attempt.lease
    try:
        if attempt.upload.status == Status.PROCESSING:
            await parse(attempt, ctx)
            attempt.upload = await _reload(attempt, ctx)
            judge(attempt.upload, pipeline_of(attempt.upload, ctx))
            if not promotes:
                await _settle(attempt, ctx, "upload.staged", lambda tx: uploads.hand_over(tx, lease))
                return
        await promote(attempt, ctx)
    except HandBack:
        back = uploads.Release()
        await _settle(attempt, ctx, "upload.handed_back", lambda tx: uploads.release(tx, lease, back))
    except LeaseLost:
        _say("upload.lease_lost", attempt)
    except StagingGone:
        await _settle(attempt, ctx, "upload.restaged", lambda tx: uploads.restage(tx, lease))
    except RetryLater as trouble:
        await _retry(attempt, ctx, trouble)
    except Refused as refusal:
        await _fail(attempt, ctx, refusal.code, refusal.message)
    except Exception as error:
        log.exception("upload.bug", upload_id=str(attempt.upload.id))
        text = f"Something went wrong inside Weighbridge ({type(error).__name__}). Its log says more."
        await _fail(attempt, ctx, "internal_error", text)
    else:
        _say("upload.done", attempt)


async def _retry(attempt: Attempt, ctx: Context, trouble: RetryLater) -> None:
    """Back to the queue for a while; with the last retry used up, fail (S1 §6.2)."""
    lease = attempt.lease

    async def write(tx: Tx) -> None:
        tries = await uploads.failures(tx, lease) + 1
        pause = POLICIES[trouble.kind].wait(tries)
        if pause is None:
            text = f"{trouble.message} It was tried {tries} times."
            await uploads.fail(tx, lease, trouble.kind, text)
        else:
            later = uploads.Release(pause, failed=True, error=trouble.message)
            await uploads.release(tx, lease, later)

    await _settle(attempt, ctx, "upload.trouble", write, kind=trouble.kind)


async def _fail(attempt: Attempt, ctx: Context, code: str, text: str) -> None:
    await _settle(
        attempt, ctx, "upload.failed", lambda tx: uploads.fail(tx, attempt.lease, code, text), code=code
    )


async def _settle(
    attempt: Attempt, ctx: Context, verdict: str, write: Callable[[Tx], Awaitable[None]], **fields: object
) -> None:
    """Write a verdict, then say it. While the database is away, try again; if it stays away, the lease runs out."""
    for pause in (0.2, 0.5, 1, 2, 5, 10, 20):
        try:
            async with ctx.db.tx() as tx:
                await write(tx)
            _say(verdict, attempt, **fields)
            return
        except RetryLater:
            await asyncio.sleep(pause)
        except LeaseLost:
            _say("upload.lease_lost", attempt)
            return
    _say("upload.left_to_its_lease", attempt)


async def _reload(attempt: Attempt, ctx: Context) -> Upload:
    async with ctx.db.tx() as tx:
        upload = await uploads.get(tx, attempt.upload.id)
    assert upload is not None
    return upload


def _say(event: str, attempt: Attempt, **fields: object) -> None:
    log.info(event, upload_id=str(attempt.upload.id), workspace_id=str(attempt.lease.workspace_id), **fields)
