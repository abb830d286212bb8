"""Writes the results of many calls in one transaction, and retries while the database is unavailable.

Calls of several workspaces share a transaction, so it waits for no lock. A result whose rows or counters another
transaction has locked is written later, and the others now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import structlog

from weighbridge.delivery import queue
from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.queue import CallResult, Settled
from weighbridge.engine.write_result import write_result
from weighbridge.model.errors import RetryLater
from weighbridge.model.retry import HELD_RESULT
from weighbridge.postgres import roles

log = structlog.get_logger()


@dataclass
class _Waiting:
    """A result that is not written yet."""

    result: CallResult
    on_held: Callable[[], None]
    written: asyncio.Future[Settled | None]
    pauses: Iterator[float] = field(default_factory=HELD_RESULT.pauses)


class SettlementBatcher:
    """One transaction at a time: results that arrive meanwhile share the next, so that it is larger under load."""

    def __init__(self, ctx: Context, outbound: Outbound) -> None:
        self._ctx = ctx
        self._outbound = outbound
        self._waiting: list[_Waiting] = []
        self._linger = 0.0
        self._running: asyncio.Task[None] | None = None

    async def settle(
        self, result: CallResult, *, linger: float, on_held: Callable[[], None] = lambda: None
    ) -> Settled | None:
        """Returns when the result is written. None: the lease was lost or has expired; the rows are recovered.

        The next transaction waits `linger` seconds for further results. `on_held` is called each time another
        transaction has locked what this result changes.
        """
        written: asyncio.Future[Settled | None] = asyncio.get_running_loop().create_future()
        self._linger = linger
        self._add(_Waiting(result, on_held, written))
        return await written

    def _add(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._linger)
            batch, self._waiting = self._waiting, []
            try:
                settled = await settle(self._ctx, self._outbound, [each.result for each in batch])
            except Exception as error:
                for each in batch:
                    if not each.written.done():
                        each.written.set_exception(error)
            else:
                for each, counts in zip(batch, settled, strict=True):
                    if not each.written.done():
                        self._ended(each, counts)

    def _ended(self, waiting: _Waiting, counts: Settled | Literal["held"] | None) -> None:
        if counts != "held":
            waiting.written.set_result(counts)
        elif pause := next(waiting.pauses, None):
            waiting.on_held()
            asyncio.get_running_loop().call_later(pause, self._add, waiting)
        else:
            waiting.written.set_result(None)


async def settle(
    ctx: Context, outbound: Outbound, calls: Sequence[CallResult]
) -> list[Settled | Literal["held"] | None]:
    """Write the results of calls, and return the counts of each. None: its lease was lost or has expired.

    "held": another transaction has locked what it changes.
    """
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
