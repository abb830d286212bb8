"""Removes stored files whose retention period is over.

    mark     the uploads that name the blob say 'removed'   from here on no upload that needs it can be opened
    delete   the object goes                                again, if somebody died here
    note     the blob counts no more

A blob goes only when every upload that names it has ended long enough ago. No new one can come to name it meanwhile:
its key has the day on which it was stored, and weighbridge.may_be_removed says why that day is over for everybody.
"""

from __future__ import annotations

from uuid import UUID

from weighbridge.model.errors import RetryLater
from weighbridge.storage import usage
from weighbridge.storage.context import Context

ROLE = "weighbridge_clean"
PATIENCE = 3  # blobs that the store does not remove; then it does not remove the others either


async def retain(ctx: Context) -> int:
    """Remove what is kept no longer. Returns how many blobs went. RetryLater where the store did not remove some."""
    days = ctx.limits.blob_days
    async with ctx.db.tx(ROLE) as tx:
        await usage.sweep(tx)
    async with ctx.db.tx() as tx:
        expired = await usage.expired(tx, days)
    gone = 0
    troubles: list[RetryLater] = []
    for workspace_id, upload_id in expired:
        try:
            gone += await _remove(ctx, workspace_id, upload_id, days)
        except RetryLater as trouble:
            troubles.append(trouble)
            if len(troubles) == PATIENCE:
                break
    if troubles:
        raise troubles[-1]
    return gone


async def _remove(ctx: Context, workspace_id: UUID, upload_id: UUID, days: int | None) -> bool:
    async with ctx.db.tx(ROLE, workspace_id) as tx:
        key = await usage.retire(tx, upload_id, days)
    if key is None:
        return False
    await ctx.blobs.delete(key)
    async with ctx.db.tx(ROLE, workspace_id) as tx:
        await usage.note_removed(tx, upload_id)
    return True
