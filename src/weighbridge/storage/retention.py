"""Removes stored files whose retention period is over.

    mark     the uploads of the blob get the status 'removed'   from here on none of them can be reopened
    delete   the object is deleted                              repeated if a process is killed here
    note     the blob is no longer counted

A blob is removed only after every upload that uses it has ended long enough ago. No new upload can start to use it:
the key contains the day on which it was stored, and weighbridge.may_be_removed explains why that day has passed.
"""

from __future__ import annotations

from uuid import UUID

from weighbridge.model.errors import RetryLater
from weighbridge.postgres import roles
from weighbridge.storage import usage
from weighbridge.storage.context import Context

MAX_FAILED_REMOVALS = 3  # failed removals before the run stops: the store does not work


async def retain(ctx: Context) -> int:
    """Remove expired blobs. Returns how many were removed. RetryLater if the store did not remove some."""
    days = ctx.limits.blob_days
    async with ctx.db.tx(roles.CLEAN) as tx:
        await usage.sweep(tx)
    async with ctx.db.tx() as tx:
        expired = await usage.expired(tx, days)
    removed = 0
    failures: list[RetryLater] = []
    for workspace_id, upload_id in expired:
        try:
            removed += await _remove(ctx, workspace_id, upload_id, days)
        except RetryLater as failure:
            failures.append(failure)
            if len(failures) == MAX_FAILED_REMOVALS:
                break
    if failures:
        raise failures[-1]
    return removed


async def _remove(ctx: Context, workspace_id: UUID, upload_id: UUID, days: int | None) -> bool:
    async with ctx.db.tx(roles.CLEAN, workspace_id) as tx:
        key = await usage.retire(tx, upload_id, days)
    if key is None:
        return False
    await ctx.blobs.delete(key)
    async with ctx.db.tx(roles.CLEAN, workspace_id) as tx:
        await usage.note_removed(tx, upload_id)
    return True
