"""Before a file is stored: does the quota allow it? After it: the usage counters.

    reserve   before the bytes are taken     QuotaExceeded, or they are set aside
    count     with the upload's row          set aside → used, once for each blob
    let_go    nothing was stored after all   set aside → free

A reservation that nobody ends runs out by itself. Parallel uploads cannot pass a limit together: each sees what the
others have set aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from weighbridge.engine.announce import TOLD
from weighbridge.model.errors import QuotaExceeded, Refused, RetryLater
from weighbridge.model.limits import Limits
from weighbridge.model.upload import Sender
from weighbridge.observe import journal
from weighbridge.postgres.errors import RowFault
from weighbridge.postgres.pool import Tx, savepoint
from weighbridge.storage import usage
from weighbridge.storage.context import Context
from weighbridge.storage.usage import Defaults, Over, Reservation

ROLE = "weighbridge_intake"
DEFAULT_USER = UUID(int=0)  # S5's single user, where a request names none


async def reserve(
    ctx: Context, sender: Sender, size: int, grant: UUID, *, lasts: timedelta = timedelta(hours=1)
) -> None:
    """Set bytes aside under this grant, in place of what it had. QuotaExceeded(413) where they would be too many."""
    consumers = [name for name in TOLD if name in ctx.consumers]
    reservation = Reservation(grant, sender.created_by or DEFAULT_USER, size, lasts, consumers)
    async with ctx.db.tx(ROLE, sender.workspace_id) as tx:
        over = await usage.reserve(tx, reservation, defaults(ctx.limits))
    if over is not None:  # said after the commit: the event that tells of it is in the same transaction
        journal.quota_reached()
        raise _too_much(over, size)


async def let_go(ctx: Context, sender: Sender, grant: UUID) -> None:
    """Nothing was stored under this grant, or it is counted; harmless twice. Never raises: it runs out by itself."""
    with suppress(RetryLater):
        async with ctx.db.tx(ROLE, sender.workspace_id) as tx:
            await usage.release(tx, grant)


async def count(
    tx: Tx, upload_id: UUID, user_id: UUID | None, size: int, file_url: str, grant: UUID | None
) -> None:
    """In the transaction that records the stored upload: its blob counts, unless it does already.

    What goes wrong here does not hold the upload up: it is logged, and `weighbridge storage recount` mends it. Only a
    lost connection is raised: then the upload is not recorded either.
    """
    user = user_id or DEFAULT_USER
    try:
        async with savepoint(tx):
            await usage.count(tx, user, size, file_url, grant)
    except Exception as error:
        if tx.closed:
            raise
        journal.usage_not_counted(user, size, _kind(error))


async def read_again(tx: Tx, users: Iterable[UUID | None], *, limited: bool) -> None:
    """S5's interpretations: stored files of these users are read again at somebody's request, each counts one.

    In the transaction that opens them. QuotaExceeded(429) where that is more than one of them may this month.
    """
    for user, number in sorted(Counter(user or DEFAULT_USER for user in users).items()):
        spent = await usage.take_interpretations(tx, user, number, limited=limited)
        if spent is not None:
            journal.interpretations_spent()
            message = (
                f"Monthly interpretation quota reached: {spent.used} of the {spent.allowed} times that files of this "
                f"user may be read again this month are used, and this would be {number} more. "
                f"It resets on {spent.resets_at:%Y-%m-%d} (UTC)."
            )
            raise QuotaExceeded(
                429, message, used=spent.used, limit=spent.allowed, resets_at=spent.resets_at, seconds=spent.seconds
            )  # fmt: skip


def defaults(limits: Limits) -> Defaults:
    """What the settings allow; the database knows who may have more or less."""
    return Defaults(limits.workspace.month, limits.workspace.total, limits.user.month, limits.user.total)


def readable(size: int) -> str:
    """`500 MB`, `1.5 GB`: in the settings' own units, of 1024."""
    units = ["bytes", "KB", "MB", "GB", "TB"]
    amount = float(size)
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.3g} {units[0]}" if amount < 999.5 else f"{amount:,.0f} {units[0]}"


def _too_much(over: Over, size: int) -> QuotaExceeded:
    used = f"this {over.whose} has {readable(over.used)} of {readable(over.allowed)}"
    file = f"the file has {readable(size)}"
    if over.resets_at is None:
        message = f"Storage quota reached: {used} in store, and {file}. Ask for a higher limit."
    else:
        when = f"It resets on {over.resets_at:%Y-%m-%d} (UTC)."
        message = f"Monthly storage quota reached: {used} used this month, and {file}. {when}"
    return QuotaExceeded(
        413, message, used=over.used, limit=over.allowed, resets_at=over.resets_at, seconds=over.seconds
    )


def _kind(error: Exception) -> str:
    """What sort of error it was, without a value in it."""
    match error:
        case RetryLater():
            return error.kind
        case RowFault() | Refused():
            return error.code
        case _:
            return type(error).__name__
