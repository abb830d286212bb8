"""Beside deliver: the ends of calls, many in one transaction, whatever the database does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from weighbridge.db import deliveries
from weighbridge.db.deliveries import Call, Settled
from weighbridge.model.errors import RetryLater
from weighbridge.steps.context import Context, Outbound
from weighbridge.steps.outbound import ROLE

log = structlog.get_logger()

PATIENCE = (0.2, 0.5, 1, 2, 5, 10, 20)  # seconds; if the database stays away, the leases run out


async def settle(ctx: Context, outbound: Outbound, calls: Sequence[Call]) -> list[Settled | None]:
    """Write what became of calls. None: the lease was lost, or it could not be written; the rows are recovered."""
    for pause in PATIENCE:
        try:
            async with ctx.db.tx(ROLE) as tx:
                written = await deliveries.settle(tx, calls, outbound.patience)
        except RetryLater:
            await asyncio.sleep(pause)
        except Exception:
            # One of them cannot be written; the others must not go with it.
            if len(calls) == 1:
                log.exception("Delivery cannot be settled", batch_id=str(calls[0].claimed.id))
                return [None]
            half = len(calls) // 2
            return [
                *await settle(ctx, outbound, calls[:half]),
                *await settle(ctx, outbound, calls[half:]),
            ]
        else:
            return [written.get(call.claimed.id) for call in calls]
    return [None] * len(calls)
