"""Beside the API and the worker, as either may have files that wait: replays them, ends resumable uploads, sweeps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

import structlog

from weighbridge.blobs import parts
from weighbridge.db.heartbeat import Heartbeat
from weighbridge.db.storage import Replay
from weighbridge.model.errors import RetryLater
from weighbridge.steps import resume
from weighbridge.steps.context import Context
from weighbridge.steps.replay import due, reconcile, replay

log = structlog.get_logger()

AT_ONCE = 4
QUICKEST = 0.25  # seconds; nothing here is in more of a hurry, and most of the time nothing waits
CEILING = timedelta(days=1)  # a store that hangs ends its request by itself; a large file may take its time
PROBE_EVERY = 60.0  # seconds; one file that waits, before its time: is the store back?
SWEEP_EVERY = 300.0
LONGEST_PAUSE = 60.0  # between two tries to end resumable uploads


class Replayer:
    """Works until told to stop; what it has in hand then goes back as it is.

    While nothing lies in its folder it does not ask the database, but for the sweep.
    """

    def __init__(self, ctx: Context, name: str, lease: timedelta, poll: timedelta) -> None:
        self.ctx = ctx
        self._name = name
        self._lease = lease
        self._poll = max(poll.total_seconds(), QUICKEST)
        self._running: dict[UUID, asyncio.Task[None]] = {}
        self._works = False  # the store has taken what it was last given
        self._probed = -PROBE_EVERY
        self._rests_until = 0.0  # after one that was not stored, for whatever reason
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heartbeat = Heartbeat(ctx.db.url, lease, CEILING, self._lost)

    async def run(self, stop: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._heartbeat.start()
        stopping = asyncio.create_task(stop.wait())
        chores = [
            asyncio.create_task(self._every(self._poll, self._end_resumable)),
            asyncio.create_task(self._every(SWEEP_EVERY, self._sweep)),
        ]
        try:
            while not stop.is_set():
                await self._tried(self._claim)
                # Jitter: processes that started together must not poll together.
                pause = self._poll * random.uniform(0.75, 1.25)  # noqa: S311
                await asyncio.wait(
                    {stopping, *self._running.values()}, timeout=pause, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            stopping.cancel()
            ending = [*chores, *self._running.values()]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)
            self._heartbeat.stop()

    async def _every(self, seconds: float, chore: Callable[[], Awaitable[Any]]) -> None:
        """Over and over; after trouble less and less often."""
        pause = seconds
        while True:
            well = await self._tried(chore)
            pause = seconds if well else min(pause * 2, max(seconds, LONGEST_PAUSE))
            await asyncio.sleep(pause)

    async def _tried(self, chore: Callable[[], Awaitable[Any]]) -> bool:
        try:
            await chore()
            return True
        except RetryLater as trouble:
            log.warning("replayer.put_off", chore=chore.__name__, reason=trouble.message)
        except Exception:  # a chore that went wrong once must be done again all the same
            log.exception("replayer.chore_failed", chore=chore.__name__)
        return False

    async def _claim(self) -> None:
        """What is due; while the store works, everything that waits; else, now and then, one file to find out."""
        room = AT_ONCE - len(self._running)
        if room <= 0 or monotonic() < self._rests_until or not self.ctx.spool.has_files():
            return
        claimed = await due(self.ctx, self._name, self._lease, room, early=self._works)
        if not claimed and not self._running and monotonic() - self._probed >= PROBE_EVERY:
            self._probed = monotonic()
            claimed = await due(self.ctx, self._name, self._lease, 1, early=True)
        for waiting in claimed:
            self._running[waiting.lease.token] = asyncio.create_task(self._replay(waiting))

    async def _replay(self, waiting: Replay) -> None:
        token = waiting.lease.token
        self._heartbeat.hold(token)
        try:
            self._works = await replay(self.ctx, waiting)
            if not self._works:
                self._rests_until = monotonic() + 5 * self._poll
        finally:
            self._heartbeat.drop(token)
            del self._running[token]

    def _lost(self, token: UUID) -> None:
        """From the heartbeat's thread: another attempt owns this file now."""
        task = self._running.get(token)
        if task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(task.cancel)

    async def _end_resumable(self) -> None:
        if parts.any_lying(self.ctx.spool):
            await resume.finish_waiting(self.ctx)

    async def _sweep(self) -> None:
        files, rows = await reconcile(self.ctx)
        expired = await resume.sweep(self.ctx)
        if files or rows or expired:
            log.info("spool.swept", files=files, lost=rows, expired=expired)
