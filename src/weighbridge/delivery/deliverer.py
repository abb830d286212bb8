"""The delivery worker: delivers queued conversions, confirms them, and watches expiry dates."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta
from typing import Any

import structlog

from weighbridge.delivery import queue as delivery_queue
from weighbridge.delivery.confirm import confirm
from weighbridge.delivery.context import Context
from weighbridge.delivery.deliver import deliver
from weighbridge.delivery.in_flight import InFlight
from weighbridge.delivery.run_counts import RunCounts
from weighbridge.engine import recover
from weighbridge.engine.chores import Chore, cancel, jittered, repeat
from weighbridge.model.errors import RetryLater
from weighbridge.model.retry import MAX_CRASHES, STUCK_MINUTES
from weighbridge.postgres import roles
from weighbridge.postgres.listen import notifications

log = structlog.get_logger()

WATCH_EVERY = timedelta(seconds=60)
RECOVER_EVERY = timedelta(seconds=20)
CONFIRM_EVERY = timedelta(seconds=30)
EXPIRY_AHEAD = timedelta(hours=24)
REFUSED_AT_ONCE = 10_000
RUNS_AT_ONCE = 4
BUSY_AT_ONCE = 2


def collect_less() -> None:
    """Reduce garbage collection: deliveries allocate many rows without reference cycles, and searching for
    cycles at Python's default rate takes a tenth of the time."""
    gc.set_threshold(20_000, 20, 50)


class Deliverer:
    """Works until stopped; calls in flight are completed first.

    A run ends with its slowest call. The next run begins as soon as the previous one has claimed its whole plan, so
    that no slot is idle while the last calls end.
    """

    def __init__(
        self, ctx: Context, name: str, limit: int, poll: timedelta, max_crashes: int = MAX_CRASHES
    ) -> None:
        self.ctx = ctx
        self._name = name
        self._limit = limit
        self._poll = poll
        self._max_crashes = max_crashes
        self._in_flight = InFlight()
        self._signals = self._in_flight.signals
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        chores = [
            Chore(self._recover, RECOVER_EVERY),
            Chore(self._watch, WATCH_EVERY),
            Chore(self._confirm, CONFIRM_EVERY),
        ]
        beside = [asyncio.create_task(work) for work in (self._listen(), *map(repeat, chores))]
        stopping = asyncio.create_task(stop.wait())
        runs: set[asyncio.Task[RunCounts | None]] = set()
        try:
            while not stop.is_set():
                self._wake.clear()
                self._signals.all_claimed.clear()
                runs = {run for run in runs if not run.done()}  # drop runs that have ended
                if len(runs) < RUNS_AT_ONCE and self._signals.claiming_runs() < BUSY_AT_ONCE:
                    runs.add(asyncio.create_task(self._deliver()))
                await self._wait({stopping, *runs}, self._signals.all_claimed)
                ended = {run for run in runs if run.done()}
                runs -= ended
                if self._signals.all_claimed.is_set() and len(runs) < RUNS_AT_ONCE:
                    continue
                if not runs and any(
                    counts and counts.processed for counts in (run.result() for run in ended)
                ):
                    continue
                await self._wait({stopping, *runs}, self._wake, self._signals.all_claimed)
        finally:
            stopping.cancel()
            await asyncio.gather(*runs, return_exceptions=True)
            await self._in_flight.settle_held()
            await cancel(beside)

    async def _wait(self, tasks: set[asyncio.Task[Any]], *events: asyncio.Event) -> None:
        """Wait until a task ends or an event is set, at most for the polling interval."""
        waiting = {asyncio.create_task(each.wait()) for each in events}
        await asyncio.wait(
            {*tasks, *waiting}, timeout=jittered(self._poll), return_when=asyncio.FIRST_COMPLETED
        )
        for each in waiting:
            each.cancel()

    async def _deliver(self) -> RunCounts | None:
        """One run. None: it failed, and the failure is logged."""
        try:
            return await deliver(self.ctx, self._name, self._limit, self._in_flight)
        except RetryLater as failure:
            log.warning("deliverer.postponed", reason=failure.message)
        except Exception:  # the next run must be attempted
            log.exception("deliverer.failed")
        return None

    async def _listen(self) -> None:
        async for _ in notifications(self.ctx.db.url, "weighbridge_deliver"):
            self._wake.set()

    async def _confirm(self) -> None:
        while await confirm(self.ctx):
            pass

    async def _recover(self) -> None:
        """Recover the work of stopped processes, of every queue: no other worker may be running."""
        await recover.run(self.ctx.db, self._max_crashes)
        # And rows that were claimed without a lease, through the fixed claim function.
        async with self.ctx.db.tx(roles.DELIVER) as tx:
            await delivery_queue.recover_stuck(tx, STUCK_MINUTES)

    async def _watch(self) -> None:
        async with self.ctx.db.tx(roles.DELIVER) as tx:
            refused = await delivery_queue.watch(tx, EXPIRY_AHEAD, REFUSED_AT_ONCE)
        if refused:
            log.warning("Conversions expired", rows=refused)
