"""Delivers events to one consumer as they are written, until the worker stops."""

from __future__ import annotations

import asyncio

import structlog

from weighbridge.engine.announce import announce_to, due
from weighbridge.engine.chores import jittered
from weighbridge.engine.context import Context
from weighbridge.engine.options import WorkerOptions
from weighbridge.engine.outbox import EventDelivery
from weighbridge.engine.signals import Signals
from weighbridge.model.errors import RetryLater

log = structlog.get_logger()

DELIVERIES_AT_ONCE = 20


class Announcer:
    """Each delivery is its own task, and each consumer has its own announcer: a slow consumer delays only itself."""

    def __init__(self, ctx: Context, options: WorkerOptions, signals: Signals, consumer: str) -> None:
        self._work_ended = signals.listener()  # events may have been written
        self._ctx = ctx
        self._options = options
        self._consumer = consumer

    async def run(self, ending: asyncio.Event) -> None:
        """Must not be cancelled: a claimed delivery is always settled."""
        under_way: set[asyncio.Task[None]] = set()
        while not ending.is_set():
            self._work_ended.clear()
            free = DELIVERIES_AT_ONCE - len(under_way)
            claimed = await self._claim(free)
            under_way |= {
                asyncio.create_task(announce_to(self._ctx, each, self._options.lease)) for each in claimed
            }
            if len(claimed) < free:  # nothing else is due
                await self._wait(set())
            elif len(under_way) == DELIVERIES_AT_ONCE:
                await self._wait(under_way)
            under_way = {task for task in under_way if not task.done()}
        await asyncio.gather(*under_way)

    async def _wait(self, under_way: set[asyncio.Task[None]]) -> None:
        """Until work has ended, one of these deliveries ends, or the polling interval is over."""
        waking = asyncio.create_task(self._work_ended.wait())
        pause = jittered(self._options.poll)  # announcers that poll together need a connection each
        await asyncio.wait({waking, *under_way}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        waking.cancel()

    async def _claim(self, limit: int) -> list[EventDelivery]:
        if not limit:
            return []
        try:
            return await due(self._ctx, self._options.name, self._options.lease, limit, [self._consumer])
        except RetryLater as failure:
            log.warning("worker.database_unavailable", reason=failure.message)
            return []
