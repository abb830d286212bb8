"""An operator retries a finished upload, the only way out of a terminal state, or dismisses a failed one."""

from __future__ import annotations

from weighbridge.model.errors import RequestRefused
from weighbridge.model.read_options import ReadOptions
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload
from weighbridge.postgres.errors import RowFault
from weighbridge.postgres.transactions import Database, Tx, savepoint
from weighbridge.storage import queue as storage_queue
from weighbridge.storage import quota, usage
from weighbridge.uploads import queue as uploads_queue


async def reopen(
    db: Database,
    upload: Upload,
    *,
    force_partial: bool,
    actor: str,
    limited: bool = False,
    reading: ReadOptions | None = None,
    newest: bool = False,
) -> str:
    """Back to pending, audited; RequestRefused(409) if its state does not allow it.

    `reading` replaces the stored read options. The file is parsed again in any case. It keeps its position in the order
    of arrival, so rows of later files stay as they are; with `newest` it counts as arrived now.

    Reading a file again counts towards its user's monthly limit; with `limited`, QuotaExceeded(429) if that is used up.
    """
    async with db.tx(workspace_id=upload.workspace_id) as tx:
        status = await reopen_one(
            tx, upload, force_partial=force_partial, actor=actor, reading=reading, newest=newest
        )
        if upload.storage_status == "stored":  # else storing the file is retried
            await quota.read_again(tx, [upload.created_by], limited=limited)
    return status


async def reopen_one(
    tx: Tx,
    upload: Upload,
    *,
    force_partial: bool,
    actor: str,
    reading: ReadOptions | None = None,
    newest: bool = False,
) -> str:
    """Reopen one upload in a transaction that may reopen several. RequestRefused(409) leaves the transaction usable."""
    if upload.status not in (Status.FAILED, Status.PARTIAL):
        raise _not_finished(upload.status)
    try:
        async with savepoint(tx):
            if upload.storage_status == "retry_failed" and await _stored_again(tx, upload, actor):
                if newest:
                    await uploads_queue.count_as_newest(tx, upload.id)
                if reading is not None:
                    await uploads_queue.change_reading(tx, upload.id, reading, actor)
                return Status.PENDING
            status = await uploads_queue.retry(
                tx, upload.id, force_partial=force_partial, actor=actor, reading=reading, newest=newest
            )
    except RowFault as fault:
        raise _superseded() from fault
    if status == "removed":
        raise await _removed(tx, upload)
    if status in ("pending_retry", "retry_failed"):
        message = f"There is no stored file to read again. {upload.error_text or ''}".rstrip()
        raise RequestRefused(409, "not_stored", message)
    if status != Status.PENDING:
        raise _not_finished(status)
    return status


async def _stored_again(tx: Tx, upload: Upload, actor: str) -> bool:
    """If its file still waits for the store, retry the storing.

    This comes before the upload's row is locked: the queue row is locked first, as in a replay.
    """
    queue_id = await storage_queue.of_upload(tx, upload.id)
    found = await storage_queue.retry(tx, queue_id, actor) if queue_id else "unknown"
    if found == "superseded":
        raise _superseded()
    return found == "queued"


async def dismiss(db: Database, upload: Upload, *, actor: str) -> None:
    """Remove it from the dead letters, audited; it stays failed. RequestRefused(409) if it has not failed."""
    async with db.tx() as tx:
        status = await uploads_queue.dismiss(tx, upload.id, actor)
    if status != Status.FAILED:
        message = f"Only a failed upload can be dismissed; this one is {status}."
        raise RequestRefused(409, "not_failed", message)


def _superseded() -> RequestRefused:
    """The content was sent again with these read options after this upload failed, and that upload counts now."""
    message = "The same content has been uploaded again since. Use that upload instead."
    return RequestRefused(409, "superseded", message)


async def _removed(tx: Tx, upload: Upload) -> RequestRefused:
    days = await usage.days_kept(tx, upload.id)
    again = "Upload the file again"
    if upload.status == Status.PARTIAL:
        again += " with force=true; without it, the file is a duplicate of this upload"
    elif upload.source_batch_id:  # the name belongs to this upload until it is released
        again += f" after weighbridge uploads release-batch {upload.id}, or under another batch name"
    message = f"The stored file was removed after {days} {'day' if days == 1 else 'days'}. {again}."
    return RequestRefused(409, "file_removed", message)


def _not_finished(status: str | None) -> RequestRefused:
    message = f"Only a failed or partial upload can be retried; this one is {status}."
    return RequestRefused(409, "not_retryable", message)
