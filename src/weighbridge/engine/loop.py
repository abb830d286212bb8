"""The worker's loop: claim while slots are free, work, announce; stop when asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

import structlog

from weighbridge.engine.announce_loop import Announcer
from weighbridge.engine.chores import cancel, jittered
from weighbridge.engine.context import Context
from weighbridge.engine.leases import Leased, Leases
from weighbridge.engine.options import WorkerOptions
from weighbridge.engine.signals import Signals
from weighbridge.model.errors import RetryLater
from weighbridge.postgres.listen import notifications

log = structlog.get_logger()


class Work(Leased, Protocol):
    """One claimed unit of work. `run` never raises: it settles every kind of failure itself."""

    async def run(self) -> None: ...


class Queue(Protocol):
    """A source of work. `claim` returns the next unit of a workspace that is not in `skip`, or None.

    RetryLater if the database cannot be reached.
    """

    async def claim(self, skip: frozenset[UUID]) -> Work | None: ...


class Loop:
    """Runs until it is stopped. Then work ends at its next safe point and goes back to its queue.

    One workspace never has all slots: the last free one is kept for a workspace that has no work here yet, so that
    its file starts at once, however long the others take.
    """

    def __init__(
        self, ctx: Context, options: WorkerOptions, leases: Leases, signals: Signals, queues: Sequence[Queue]
    ) -> None:
        self._ctx = ctx
        self._options = options
        self._leases = leases
        self._signals = signals
        self._queues = queues
        self._announcers = [Announcer(ctx, options, signals, name) for name in ctx.consumers]
        self._running: dict[asyncio.Task[None], UUID] = {}  # with the workspace
        self._turn = 0  # the queue to ask first; rotates
        self._wake = asyncio.Event()

    @property
    def busy(self) -> bool:
        return bool(self._running)

    async def run(self, stop: asyncio.Event) -> None:
        self._leases.start()
        listening = asyncio.create_task(self._listen())
        ending = asyncio.Event()
        announcing = [asyncio.create_task(each.run(ending)) for each in self._announcers]
        try:
            await self._claim_until(stop)
        finally:
            ending.set()
            await self._end_work()
            await cancel([listening])
            self._signals.work_ended()  # the announcers end
            await asyncio.gather(*announcing)
            self._leases.stop()

    async def run_once(self) -> bool:
        """Claim one unit of work, finish it, and end. False: there was none."""
        self._leases.start()
        try:
            if not await self._claim():
                return False
            await asyncio.gather(*self._running)
            return True
        finally:
            await self._end_work()
            self._leases.stop()

    async def _claim_until(self, stop: asyncio.Event) -> None:
        stopping = asyncio.create_task(stop.wait())
        while not stop.is_set():
            self._wake.clear()
            while len(self._running) < self._options.slots and not stop.is_set() and await self._claim():
                pass
            waking = asyncio.create_task(self._wake.wait())
            await asyncio.wait(
                {waking, stopping}, timeout=jittered(self._options.poll), return_when=asyncio.FIRST_COMPLETED
            )
            waking.cancel()
        stopping.cancel()

    async def _claim(self) -> bool:
        """Start the next unit of work from the first queue that has one."""
        self._turn += 1
        last_slot = len(self._running) == self._options.slots - 1
        skip = frozenset(self._running.values() if last_slot else ())
        for each in range(len(self._queues)):
            queue = self._queues[(self._turn + each) % len(self._queues)]
            try:
                work = await queue.claim(skip)
            except RetryLater as failure:
                log.warning("worker.database_unavailable", reason=failure.message)
                return False
            if work is not None:
                task = asyncio.create_task(self._run(work))
                self._running[task] = work.lease.workspace_id
                task.add_done_callback(self._ended)
                return True
        return False

    async def _run(self, work: Work) -> None:
        with self._leases.holding(work):
            await work.run()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._signals.work_ended()
        self._wake.set()

    async def _end_work(self) -> None:
        self._leases.request_stop()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _listen(self) -> None:
        async for _ in notifications(self._ctx.db.url, "weighbridge_work"):
            self._wake.set()
