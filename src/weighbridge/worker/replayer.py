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

from weighbridge.db.heartbeat import Heartbeat
from weighbridge.db.storage import Replay
from weighbridge.model.errors import RetryLater
from weighbridge.steps import resume
from weighbridge.steps.context import Context
from weighbridge.steps.replay import due, reconcile, replay

log = structlog.get_logger()

AT_ONCE = 4
SWEEP_EVERY = timedelta(minutes=5)


class Replayer:
    """Works until told to stop; what it has in hand then goes back as it is."""

    def __init__(
        self, ctx: Context, name: str, lease: timedelta, ceiling: timedelta, poll: timedelta
    ) -> None:
        self.ctx = ctx
        self._name = name
        self._lease = lease
        self._poll = poll
        self._running: dict[UUID, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heartbeat = Heartbeat(ctx.db.url, lease, ceiling, self._lost)
        self._swept = -SWEEP_EVERY.total_seconds()

    async def run(self, stop: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._heartbeat.start()
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                await self._tried(self._claim)
                await self._tried(self._end_resumable)
                if monotonic() - self._swept >= SWEEP_EVERY.total_seconds():
                    await self._tried(self._sweep)
                # Jitter: processes that started together must not poll together.
                pause = self._poll.total_seconds() * random.uniform(0.75, 1.25)  # noqa: S311
                await asyncio.wait(
                    {stopping, *self._running.values()}, timeout=pause, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            stopping.cancel()
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
            self._heartbeat.stop()

    async def _tried(self, chore: Callable[[], Awaitable[Any]]) -> None:
        try:
            await chore()
        except RetryLater as trouble:
            log.warning("replayer.database_away", reason=trouble.message)
        except Exception:  # a chore that went wrong once must be done again all the same
            log.exception("replayer.chore_failed", chore=chore.__name__)

    async def _claim(self) -> None:
        room = AT_ONCE - len(self._running)
        if room > 0:
            for waiting in await due(self.ctx, self._name, self._lease, room):
                self._running[waiting.lease.token] = asyncio.create_task(self._replay(waiting))

    async def _replay(self, waiting: Replay) -> None:
        token = waiting.lease.token
        self._heartbeat.hold(token)
        try:
            await replay(self.ctx, waiting)
        finally:
            self._heartbeat.drop(token)
            del self._running[token]

    def _lost(self, token: UUID) -> None:
        """From the heartbeat's thread: another attempt owns this file now."""
        task = self._running.get(token)
        if task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(task.cancel)

    async def _end_resumable(self) -> None:
        await resume.finish_waiting(self.ctx)

    async def _sweep(self) -> None:
        self._swept = monotonic()
        files, rows = await reconcile(self.ctx)
        expired = await resume.sweep(self.ctx)
        if files or rows or expired:
            log.info("spool.swept", files=files, lost=rows, expired=expired)
