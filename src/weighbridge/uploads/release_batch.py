"""An operator releases the batch name of a failed upload, so that the fixed file can use it."""

from __future__ import annotations

from weighbridge.model.errors import RequestRefused
from weighbridge.model.upload import Upload
from weighbridge.postgres.transactions import Database
from weighbridge.uploads import queue


async def release_batch(db: Database, upload: Upload, *, actor: str) -> str:
    """Release the name, audited, and return it; RequestRefused(409) if the upload has not failed or has no name."""
    async with db.tx(workspace_id=upload.workspace_id) as tx:
        outcome = await queue.release_batch(tx, upload.id, actor)
    if outcome == "unnamed":
        raise RequestRefused(409, "no_batch", _no_batch(upload))
    if outcome != "released":
        message = f"Only a failed upload can release its batch name; this one is {outcome}."
        raise RequestRefused(409, "not_failed", message)
    return upload.source_batch_id or ""


def _no_batch(upload: Upload) -> str:
    if upload.released_batch_id is not None:
        return "The batch name of this upload is already released."
    return "This upload has no batch name to release."
