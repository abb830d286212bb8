"""Last step: staged rows that have outlived their days → gone. Production is not ours to touch."""

from __future__ import annotations

from weighbridge.db import staging
from weighbridge.steps.context import Context

ROLE = "weighbridge_clean"


async def clean(ctx: Context) -> int:
    """Delete staged rows older than the limit, of finished uploads. Returns how many rows went."""
    async with ctx.db.tx() as tx:
        uploads = await staging.expired(tx, ctx.limits.staging_days)
    gone = 0
    for upload in uploads:  # one transaction each: a large clean-up must not hold its locks for long
        async with ctx.db.tx(ROLE) as tx:
            gone += await staging.purge(tx, list(ctx.pipelines.values()), [upload])
        async with ctx.db.tx() as tx:
            await staging.forget(tx, [upload])
    return gone
