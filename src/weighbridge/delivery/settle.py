"""Writes the results of many calls in one transaction, and retries while the database is unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from weighbridge.delivery import queue
from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.queue import CallResult, Settled
from weighbridge.engine.write_result import write_result
from weighbridge.model.errors import RetryLater
from weighbridge.postgres import roles

log = structlog.get_logger()


class SettlementBatcher:
    """One transaction at a time: results that arrive meanwhile share the next, so that it is larger under load."""

    def __init__(self, ctx: Context, outbound: Outbound) -> None:
        self._ctx = ctx
        self._outbound = outbound
        self._waiting: list[tuple[CallResult, asyncio.Future[Settled | None]]] = []
        self._linger = 0.0
        self._running: asyncio.Task[None] | None = None

    async def settle(self, result: CallResult, *, linger: float) -> Settled | None:
        """Returns when the result is written. None: the lease was lost or has expired; the rows are recovered.

        The next transaction waits `linger` seconds for further results.
        """
        written: asyncio.Future[Settled | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, written))
        self._linger = linger
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await written

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._linger)
            batch, self._waiting = self._waiting, []
            try:
                settled = await settle(self._ctx, self._outbound, [result for result, _ in batch])
            except Exception as error:
                for _, written in batch:
                    if not written.done():
                        written.set_exception(error)
            else:
                for (_, written), counts in zip(batch, settled, strict=True):
                    if not written.done():
                        written.set_result(counts)


async def settle(ctx: Context, outbound: Outbound, calls: Sequence[CallResult]) -> list[Settled | None]:
    """Write the results of calls, and return the counts of each. None: its lease was lost or has expired."""
    try:
        written = await write_result(
            ctx.db, lambda tx: queue.settle(tx, calls, outbound.retries), roles.DELIVER
        )
    except RetryLater:
        return [None] * len(calls)
    except Exception:
        # One result cannot be written; the others must still be.
        if len(calls) == 1:
            log.exception("Delivery cannot be settled", batch_id=str(calls[0].batch.id))
            return [None]
        half = len(calls) // 2
        return [
            *await settle(ctx, outbound, calls[:half]),
            *await settle(ctx, outbound, calls[half:]),
        ]
    return [written.get(call.batch.id) for call in calls]
