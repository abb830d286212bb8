"""Beside the worker: delivers conversions as they come, watches what is about to expire, asks for confirmations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import Any

import structlog

from weighbridge.db import deliveries, uploads
from weighbridge.db.listen import notifications
from weighbridge.model.errors import RetryLater
from weighbridge.observe import journal
from weighbridge.steps.confirm import confirm
from weighbridge.steps.context import Context
from weighbridge.steps.deliver import ROLE, Tally, deliver

log = structlog.get_logger()

WATCH_EVERY = 60.0  # seconds
RECOVER_EVERY = 20.0
CONFIRM_EVERY = 30.0
EXPIRY_AHEAD = timedelta(hours=24)
REFUSED_AT_ONCE = 10_000


class Deliverer:
    """Works until told to stop; calls that are under way then are seen through."""

    def __init__(self, ctx: Context, name: str, limit: int, poll: timedelta, max_crashes: int = 5) -> None:
        self.ctx = ctx
        self._max_crashes = max_crashes
        self._name = name
        self._limit = limit
        self._poll = poll.total_seconds()
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        listening = asyncio.create_task(self._listen())
        stopping = asyncio.create_task(stop.wait())
        watched = confirmed = recovered = -WATCH_EVERY
        try:
            while not stop.is_set():
                self._wake.clear()
                if monotonic() - recovered >= RECOVER_EVERY:
                    recovered = monotonic()
                    await self._tried(self._recover)
                if monotonic() - watched >= WATCH_EVERY:
                    watched = monotonic()
                    await self._tried(self._watch)
                if monotonic() - confirmed >= CONFIRM_EVERY:
                    confirmed = monotonic()
                    await self._tried(lambda: confirm(self.ctx))
                tally = await self._tried(lambda: deliver(self.ctx, self._name, self._limit))
                if tally is not None and tally.processed:
                    continue
                waking = asyncio.create_task(self._wake.wait())
                # Jitter: workers that started together must not poll together.
                pause = self._poll * random.uniform(0.75, 1.25)  # noqa: S311
                await asyncio.wait({waking, stopping}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
        finally:
            stopping.cancel()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self) -> None:
        async for _ in notifications(self.ctx.db.url, "weighbridge_deliver"):
            self._wake.set()

    async def _recover(self) -> None:
        """Calls of processes that are gone. Workers do this too; there need be none where this one runs."""
        async with self.ctx.db.tx() as tx:
            for each in await uploads.recover(tx, self._max_crashes):
                if each.queue == "deliveries":
                    journal.delivery_taken_back(each.subject, each.worker)

    async def _watch(self) -> None:
        async with self.ctx.db.tx(ROLE) as tx:
            refused = await deliveries.watch(tx, EXPIRY_AHEAD, REFUSED_AT_ONCE)
        if refused:
            log.warning("Conversions expired", rows=refused)

    async def _tried(self, chore: Callable[[], Awaitable[Any]]) -> Tally | None:
        try:
            return await chore()  # type: ignore[no-any-return]
        except RetryLater as trouble:
            log.warning("deliverer.put_off", reason=trouble.message)
        except Exception:  # a chore that went wrong once must be done again all the same
            log.exception("deliverer.failed")
        return None
