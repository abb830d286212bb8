"""Failed conversions → queued again, for operators.

A conversion whose sale is being changed by another transaction is locked. Waiting for it while other conversions are
locked could deadlock with that transaction, so it is skipped, and tried again in a transaction of its own.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

from weighbridge.delivery import queue
from weighbridge.delivery.queue import FailedFilter
from weighbridge.model.retry import LOCKED_CONVERSION
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Database


async def retry_failed(db: Database, wanted: FailedFilter, workspace_id: UUID, actor: str) -> int:
    """Queue failed conversions of a workspace again; returns how many. Each transaction is audited.

    Conversions that stay locked for more than a second stay failed.
    """
    count = 0
    for pause in (*LOCKED_CONVERSION.pauses(), None):
        async with db.tx(roles.DELIVER, workspace_id) as tx:
            count += await queue.requeue(tx, wanted, workspace_id, actor)
            left = await queue.count_failed(tx, wanted, workspace_id)
        if pause is None or not left:
            break
        await asyncio.sleep(pause)
    return count
