"""Stores waiting files of this machine, as a task of the API or the worker, until it is stopped."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic

import structlog

from weighbridge.engine.chores import Chore, cancel, jittered, repeated, run_logged
from weighbridge.engine.leases import Leases
from weighbridge.engine.options import WorkerOptions
from weighbridge.model.errors import WeighbridgeError
from weighbridge.model.retry import STORE_PAUSE_POLLS, STORE_PROBE
from weighbridge.postgres.transactions import Lease
from weighbridge.storage.context import Context
from weighbridge.storage.queue import Replay
from weighbridge.storage.replay import due, reconcile, replay

log = structlog.get_logger()

AT_ONCE = 4
SHORTEST_POLL = timedelta(seconds=0.25)  # most of the time no file is queued
CEILING = timedelta(days=1)  # a hanging store has its own timeout; a large file may take long
SWEEP_EVERY = timedelta(minutes=5)


class Replayer:
    """Runs until it is stopped; files in progress then go back to the queue unchanged.

    While its folder is empty it does not query the database, except for the sweep.
    """

    def __init__(self, ctx: Context, options: WorkerOptions) -> None:
        self.ctx = ctx
        self._name = options.name
        self._lease = options.lease
        self._poll = max(options.poll, SHORTEST_POLL)
        self._running: set[asyncio.Task[None]] = set()
        self._store_works = False  # the store accepted the last file
        self._probed = -STORE_PROBE.total_seconds()
        self._no_claims_before = 0.0  # no claims until then, after a file was not stored
        self._leases = Leases(ctx.db.url, options.lease, CEILING, lazy=True)

    async def run(self, stop: asyncio.Event) -> None:
        self._leases.start()
        stopping = asyncio.create_task(stop.wait())
        try:
            async with repeated(Chore(self._sweep, SWEEP_EVERY, backs_off=True)):
                while not stop.is_set():
                    await run_logged(self._claim)
                    await asyncio.wait(
                        {stopping, *self._running},
                        timeout=jittered(self._poll),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
        finally:
            stopping.cancel()
            await cancel(list(self._running))
            self._leases.stop()

    async def _claim(self) -> None:
        """Claim files that are due; while the store works, all files; otherwise sometimes one file as a probe."""
        free = AT_ONCE - len(self._running)
        if free <= 0 or monotonic() < self._no_claims_before or not self.ctx.spool.has_files():
            return
        claimed = await due(self.ctx, self._name, self._lease, free, early=self._store_works)
        if not claimed and not self._running and monotonic() - self._probed >= STORE_PROBE.total_seconds():
            self._probed = monotonic()
            claimed = await due(self.ctx, self._name, self._lease, 1, early=True)
        for waiting in claimed:
            task = asyncio.create_task(self._replay(waiting))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _replay(self, waiting: Replay) -> None:
        task = asyncio.current_task()
        assert task is not None
        with self._leases.holding(_ReplayTask(waiting.lease, task)):
            self._store_works = await replay(self.ctx, waiting)
        if not self._store_works:
            self._no_claims_before = monotonic() + STORE_PAUSE_POLLS * self._poll.total_seconds()

    async def _sweep(self) -> None:
        files, rows = await reconcile(replace(self.ctx, db=self.ctx.db.in_turns()))
        if files or rows:
            log.info("spool.swept", files=files, lost=rows)


@dataclass(frozen=True)
class _ReplayTask:
    """A replay under its lease."""

    lease: Lease
    task: asyncio.Task[None]

    def interrupt(self, reason: WeighbridgeError) -> None:
        """From the heartbeat's thread: another attempt owns this file now."""
        self.task.get_loop().call_soon_threadsafe(self.task.cancel)
