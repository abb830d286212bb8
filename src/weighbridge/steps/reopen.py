"""Beside the flow: an operator opens a finished upload again, the only way out of a terminal state, or dismisses it."""

from __future__ import annotations

from weighbridge.db import uploads
from weighbridge.db.errors import RowFault
from weighbridge.db.pool import Database
from weighbridge.model.errors import RequestRefused
from weighbridge.model.states import Status
from weighbridge.model.upload import Upload


async def reopen(db: Database, upload: Upload, *, force_partial: bool, actor: str) -> str:
    """Back to pending, audited; RequestRefused(409) where its state does not allow it."""
    if upload.status not in (Status.FAILED, Status.PARTIAL):
        raise _not_finished(upload.status)
    try:
        async with db.tx() as tx:
            status = await uploads.retry(tx, upload.id, force_partial=force_partial, actor=actor)
    except RowFault as fault:
        # The content was sent again after this upload failed, and that one counts now.
        message = "The same content was uploaded again since; look at that upload instead."
        raise RequestRefused(409, "superseded", message) from fault
    if status != Status.PENDING:
        raise _not_finished(status)
    return status


async def dismiss(db: Database, upload: Upload, *, actor: str) -> None:
    """Off the dead letters, audited; it stays failed. RequestRefused(409) where it has not failed."""
    async with db.tx() as tx:
        status = await uploads.dismiss(tx, upload.id, actor)
    if status != Status.FAILED:
        message = f"Only a failed upload can be dismissed; this one is {status}."
        raise RequestRefused(409, "not_failed", message)


def _not_finished(status: str | None) -> RequestRefused:
    message = f"Only a failed or partial upload can be tried again; this one is {status}."
    return RequestRefused(409, "not_retryable", message)
