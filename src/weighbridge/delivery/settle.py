"""Writes the results of many calls in one transaction, and retries while the database is unavailable."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from weighbridge.delivery import queue
from weighbridge.delivery.context import ROLE, Context, Outbound
from weighbridge.delivery.queue import CallResult, Settled
from weighbridge.model.errors import RetryLater
from weighbridge.model.retry import RESULT

log = structlog.get_logger()


@dataclass
class RunCounts:
    """Counts of one run, as the cron route returns them. The names of the first four are fixed."""

    processed: int = 0
    completed: int = 0
    failed: int = 0
    retry: int = 0
    calls: int = 0
    full: int = 0  # batches for which no slot was free; they were not sent
    parked: int = 0  # conversions postponed because the circuit of their group is open
    skipped: Counter[str] = field(default_factory=Counter)  # groups, by what blocks them

    def add(self, settled: Settled) -> None:
        self.processed += settled.completed + settled.failed + settled.retry
        self.completed += settled.completed
        self.failed += settled.failed
        self.retry += settled.retry


async def settle(ctx: Context, outbound: Outbound, calls: Sequence[CallResult]) -> list[Settled | None]:
    """Write the results of calls. None: the lease was lost or has expired; the rows are recovered."""
    for pause in RESULT.pauses():
        try:
            async with ctx.db.tx(ROLE) as tx:
                written = await queue.settle(tx, calls, outbound.retries)
        except RetryLater:
            await asyncio.sleep(pause)
        except Exception:
            # One result cannot be written; the others must still be.
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
