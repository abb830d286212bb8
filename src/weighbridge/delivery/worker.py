"""The delivery worker: delivers queued conversions, confirms them, and watches expiry dates."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import structlog

from weighbridge.delivery import queue as delivery_queue
from weighbridge.delivery.confirm import confirm
from weighbridge.delivery.context import Context
from weighbridge.delivery.in_flight import InFlight
from weighbridge.delivery.outbound import ROLE
from weighbridge.delivery.run import deliver
from weighbridge.delivery.settle import Tally
from weighbridge.engine import recover
from weighbridge.model.errors import RetryLater
from weighbridge.observe import journal
from weighbridge.postgres.listen import notifications

log = structlog.get_logger()

T = TypeVar("T")

WATCH_EVERY = 60.0  # seconds
RECOVER_EVERY = 20.0
STUCK_MINUTES = 15
CONFIRM_EVERY = 30.0
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

    A run ends with its slowest call. What comes meanwhile is the next one's, which leaves to it what it is at. It
    begins when the previous one has claimed its whole plan, so that no slot is idle while the last calls end.
    """

    def __init__(self, ctx: Context, name: str, limit: int, poll: timedelta, max_crashes: int = 5) -> None:
        self.ctx = ctx
        self._name = name
        self._limit = limit
        self._poll = poll.total_seconds()
        self._max_crashes = max_crashes
        self._in_flight = InFlight()
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        beside = [
            asyncio.create_task(self._listen()),
            asyncio.create_task(self._every(RECOVER_EVERY, self._recover)),
            asyncio.create_task(self._every(WATCH_EVERY, self._watch)),
            asyncio.create_task(self._every(CONFIRM_EVERY, self._confirm)),
        ]
        stopping = asyncio.create_task(stop.wait())
        runs: set[asyncio.Task[Tally | None]] = set()
        try:
            while not stop.is_set():
                self._wake.clear()
                self._in_flight.all_claimed.clear()
                runs = {run for run in runs if not run.done()}  # drop runs that have ended
                if len(runs) < RUNS_AT_ONCE and self._in_flight.claiming_runs() < BUSY_AT_ONCE:
                    runs.add(asyncio.create_task(self._tried(self._deliver)))
                await self._wait({stopping, *runs}, self._in_flight.all_claimed)
                ended = {run for run in runs if run.done()}
                runs -= ended
                if self._in_flight.all_claimed.is_set() and len(runs) < RUNS_AT_ONCE:
                    continue
                if not runs and any(tally and tally.processed for tally in (run.result() for run in ended)):
                    continue
                await self._wait({stopping, *runs}, self._wake, self._in_flight.all_claimed)
        finally:
            stopping.cancel()
            await asyncio.gather(*runs, return_exceptions=True)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _wait(self, tasks: set[asyncio.Task[Any]], *events: asyncio.Event) -> None:
        """Wait until a task ends or an event is set, at most for the polling interval."""
        # Jitter: workers that started together must not poll together.
        pause = self._poll * random.uniform(0.75, 1.25)  # noqa: S311
        waiting = {asyncio.create_task(each.wait()) for each in events}
        await asyncio.wait({*tasks, *waiting}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    async def _deliver(self) -> Tally:
        return await deliver(self.ctx, self._name, self._limit, self._in_flight)

    async def _listen(self) -> None:
        async for _ in notifications(self.ctx.db.url, "weighbridge_deliver"):
            self._wake.set()

    async def _every(self, seconds: float, chore: Callable[[], Awaitable[Any]]) -> None:
        while True:
            await self._tried(chore)
            await asyncio.sleep(seconds)

    async def _confirm(self) -> None:
        while await confirm(self.ctx):
            pass

    async def _recover(self) -> None:
        """Recover calls of stopped processes. Upload workers do this too, but none may be running here."""
        async with self.ctx.db.tx() as tx:
            for each in await recover.recover(tx, self._max_crashes):
                if each.queue == "deliveries":
                    journal.delivery_taken_back(each.subject, each.worker)
        # And rows that were claimed without a lease, through the fixed claim function.
        async with self.ctx.db.tx(ROLE) as tx:
            await delivery_queue.recover_stuck(tx, STUCK_MINUTES)

    async def _watch(self) -> None:
        async with self.ctx.db.tx(ROLE) as tx:
            refused = await delivery_queue.watch(tx, EXPIRY_AHEAD, REFUSED_AT_ONCE)
        if refused:
            log.warning("Conversions expired", rows=refused)

    async def _tried(self, chore: Callable[[], Awaitable[T]]) -> T | None:
        try:
            return await chore()
        except RetryLater as trouble:
            log.warning("deliverer.put_off", reason=trouble.message)
        except Exception:  # an error must not stop the periodic task
            log.exception("deliverer.failed")
        return None
