"""Before a file is stored: does the quota allow it? Afterwards: update the usage counters.

    reserve   before the bytes are received   QuotaExceeded, or the bytes are reserved
    count     with the upload's row           reserved → used, once per blob
    release   nothing was stored              reserved → free

A reservation that is not ended expires. Parallel uploads cannot exceed a limit together: each sees the reservations
of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import structlog

from weighbridge.model.errors import QuotaExceeded, Refused, RetryLater
from weighbridge.model.limits import Limits
from weighbridge.model.upload import Sender
from weighbridge.observe import journal
from weighbridge.postgres import roles
from weighbridge.postgres.errors import RowFault
from weighbridge.postgres.transactions import Database, Tx, savepoint
from weighbridge.storage import usage
from weighbridge.storage.context import Context
from weighbridge.storage.usage import Defaults, ExceededLimit, Reservation

log = structlog.get_logger()

COUNTED_AT_ONCE = 100
DEFAULT_USER = UUID(int=0)  # the user of requests that name none


async def reserve(
    ctx: Context, sender: Sender, size: int, grant: UUID, *, lasts: timedelta = timedelta(hours=1)
) -> None:
    """Reserve bytes under this grant, replacing its earlier reservation. QuotaExceeded(413) if they exceed a limit."""
    reservation = Reservation(grant, sender.created_by or DEFAULT_USER, size, lasts, ctx.general_consumers)
    async with ctx.db.tx(roles.INTAKE, sender.workspace_id) as tx:
        exceeded = await usage.reserve(tx, reservation, defaults(ctx.limits))
    if exceeded is not None:  # raised after the commit: the event about it is in the same transaction
        journal.quota_reached()
        raise _too_much(exceeded, size)


async def release(ctx: Context, sender: Sender, grant: UUID) -> None:
    """End a reservation: nothing was stored, or it is counted. Idempotent. Never raises, as it also expires."""
    with suppress(RetryLater):
        async with ctx.db.tx(roles.INTAKE, sender.workspace_id) as tx:
            await usage.release(tx, grant)


async def count(
    tx: Tx, upload_id: UUID, user_id: UUID | None, size: int, file_url: str, grant: UUID | None
) -> None:
    """In the transaction that records the stored upload: count its blob, unless it is already counted.

    An error here does not stop the upload: it is logged and recorded, and workers count the blob again until that
    succeeds. If it cannot be recorded, or the connection is lost, the error is raised: the upload is not recorded.
    """
    user = user_id or DEFAULT_USER
    try:
        async with savepoint(tx):
            await usage.count(tx, user, size, file_url, grant)
    except Exception as error:
        if tx.closed:
            raise
        await usage.note_uncounted(tx, upload_id, user, size, grant)
        journal.usage_not_counted(user, size, _kind(error))


async def count_again(db: Database) -> None:
    """The chore of a worker: count blobs that could not be counted with their uploads."""
    async with db.tx() as tx:
        done = await usage.count_uncounted(tx, COUNTED_AT_ONCE)
    if done is not None and done.failed:
        log.error("storage.uncounted", counted=done.counted, failed=done.failed, sqlstate=done.error)
    elif done is not None:
        log.info("storage.counted_again", counted=done.counted)


async def read_again(tx: Tx, users: Iterable[UUID | None], *, limited: bool) -> None:
    """Count that stored files of these users are read again on request: one interpretation per file.

    In the transaction that reopens them. QuotaExceeded(429) if it exceeds a user's monthly limit.
    """
    for user, number in sorted(Counter(user or DEFAULT_USER for user in users).items()):
        spent = await usage.take_interpretations(tx, user, number, limited=limited)
        if spent is not None:
            journal.interpretations_spent()
            message = (
                f"Monthly interpretation quota reached: {spent.used} of {spent.allowed} are used, and this needs "
                f"{number} more. An interpretation is one file of this user that is read again. "
                f"It resets on {spent.resets_at:%Y-%m-%d} (UTC)."
            )
            raise QuotaExceeded(
                429, message, used=spent.used, limit=spent.allowed, resets_at=spent.resets_at, seconds=spent.seconds
            )  # fmt: skip


def defaults(limits: Limits) -> Defaults:
    """The limits from the settings; the database has the exceptions."""
    return Defaults(limits.workspace.month, limits.workspace.total, limits.user.month, limits.user.total)


def readable(size: int) -> str:
    """`500 MB`, `1.5 GB`: with units of 1024, as in the settings."""
    units = ["bytes", "KB", "MB", "GB", "TB"]
    amount = float(size)
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.3g} {units[0]}" if amount < 999.5 else f"{amount:,.0f} {units[0]}"


def _too_much(exceeded: ExceededLimit, size: int) -> QuotaExceeded:
    used = f"{readable(exceeded.used)} of {readable(exceeded.allowed)}"
    file = f"the file is {readable(size)}"
    if exceeded.resets_at is None:
        message = (
            f"Storage quota reached: this {exceeded.whose} has {used} in the store, and {file}. "
            "Ask for a higher limit."
        )
    else:
        when = f"It resets on {exceeded.resets_at:%Y-%m-%d} (UTC)."
        message = f"Monthly storage quota reached: this {exceeded.whose} has used {used} this month, and {file}. {when}"
    return QuotaExceeded(
        413,
        message,
        used=exceeded.used,
        limit=exceeded.allowed,
        resets_at=exceeded.resets_at,
        seconds=exceeded.seconds,
    )


def _kind(error: Exception) -> str:
    """The kind of an error, without any values."""
    match error:
        case RetryLater():
            return error.kind
        case RowFault() | Refused():
            return error.code
        case _:
            return type(error).__name__
