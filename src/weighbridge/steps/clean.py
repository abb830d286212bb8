"""Last step: staged rows that have outlived their days → gone. Production is not ours to touch."""

from __future__ import annotations

from weighbridge.db import staging
from weighbridge.steps.context import Context

ROLE = "weighbridge_clean"


async def clean(ctx: Context) -> int:
    """Delete staged rows older than the limit, of finished uploads. Returns how many rows went."""
    pipelines, days = list(ctx.pipelines.values()), ctx.limits.staging_days
    async with ctx.db.tx() as tx:
        uploads = await staging.expired(tx, days, pipelines)
    gone = 0
    for upload in uploads:  # one transaction each: a large clean-up must not hold its locks for long
        async with ctx.db.tx(ROLE) as tx:
            if await staging.expire(tx, upload, days):  # an operator may have opened it again meanwhile
                gone += await staging.purge(tx, pipelines, upload)
    return gone
