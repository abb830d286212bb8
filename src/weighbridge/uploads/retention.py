"""Removes staged rows and scratch files whose retention period is over. Production is never touched."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from weighbridge.postgres import roles
from weighbridge.uploads import staging
from weighbridge.uploads.context import Context
from weighbridge.uploads.preview import expire

SCRATCH_SECONDS = 24 * 3600  # much longer than any step keeps a scratch file


async def clean(ctx: Context) -> int:
    """Delete expired staged rows, of finished uploads and of previews without a decision.

    Returns the number of deleted rows.
    """
    pipelines, days = list(ctx.pipelines.values()), ctx.limits.staging_days
    deleted = await expire(ctx)
    async with ctx.db.tx() as tx:
        uploads = await staging.expired(tx, days, pipelines)
    for upload in uploads:  # one transaction each: a large cleanup must not hold its locks for long
        async with ctx.db.tx(roles.CLEAN) as tx:
            if await staging.expire(tx, upload, days):  # an operator may have reopened it meanwhile
                deleted += await staging.purge(tx, pipelines, upload)
    return deleted


def sweep(scratch: Path) -> int:
    """Remove the scratch files of killed processes. Returns how many were removed.

    Ages come from the file system, so this is the only place that uses the machine's clock.
    """
    old = [path for path in scratch.iterdir() if path.stat().st_mtime < time.time() - SCRATCH_SECONDS]
    for path in old:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return len(old)
