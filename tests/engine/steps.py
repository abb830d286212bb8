"""Running the steps of one upload by hand, to stop between them or to give them other limits."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from tests.engine.conftest import CLAIM
from weighbridge.db import uploads
from weighbridge.steps.attempt import Attempt
from weighbridge.steps.context import Context
from weighbridge.steps.parse import parse
from weighbridge.steps.promote import promote


async def claim(ctx: Context) -> Attempt:
    async with ctx.db.tx() as tx:
        claimed = await uploads.claim(tx, replace(CLAIM, pipelines=tuple(ctx.pipelines)))
    assert claimed is not None
    return Attempt(*claimed)


async def reload(ctx: Context, attempt: Attempt) -> Attempt:
    async with ctx.db.tx() as tx:
        upload = await uploads.get(tx, attempt.upload.id)
    assert upload is not None
    return Attempt(attempt.lease, upload)


async def parse_by_hand(ctx: Context) -> Attempt:
    attempt = await claim(ctx)
    await parse(attempt, ctx)
    return await reload(ctx, attempt)


async def promote_by_hand(ctx: Context, upload_id: UUID) -> Attempt:
    attempt = await parse_by_hand(ctx)
    assert attempt.upload.id == upload_id
    await promote(attempt, ctx)
    return await reload(ctx, attempt)
