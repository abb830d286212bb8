"""Beside deliver: the ends of calls, written as they come, many in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from uuid import UUID

import structlog

from weighbridge.db import deliveries
from weighbridge.db.deliveries import Call, Settled
from weighbridge.model.errors import RetryLater
from weighbridge.slots.base import Held
from weighbridge.steps.context import Context, Outbound

log = structlog.get_logger()

ROLE = "weighbridge_deliver"
PATIENCE = (0.2, 0.5, 1, 2, 5, 10, 20)  # seconds; if the database stays away, the leases run out


class Settler:
    """While one transaction is under way the next ends gather: the busier, the more of them at once."""

    def __init__(self, ctx: Context, outbound: Outbound) -> None:
        self._ctx = ctx
        self._outbound = outbound
        self._calls: list[tuple[Call, asyncio.Future[Settled | None]]] = []
        self._slots: list[Held] = []
        self._news = asyncio.Event()
        self._ending = False

    async def __aenter__(self) -> Settler:
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._ending = True
        self._news.set()
        await self._writing

    def give_back(self, held: Held) -> None:
        """The call is over: others may have its slot."""
        self._slots.append(held)
        self._news.set()

    async def settle(self, call: Call) -> Settled | None:
        """Returns when it is written. None: the lease was lost, or the database stayed away; nothing was."""
        settled: asyncio.Future[Settled | None] = asyncio.get_running_loop().create_future()
        self._calls.append((call, settled))
        self._news.set()
        return await settled

    async def _write(self) -> None:
        while not self._ending or self._calls or self._slots:
            await self._news.wait()
            self._news.clear()
            slots, self._slots = self._slots, []
            calls, self._calls = self._calls, []
            if slots:
                await self._outbound.slots.release(slots)
            if calls:
                written = await self._written([call for call, _ in calls])
                for call, settled in calls:
                    if call.claimed.id not in written:
                        log.warning("Delivery not settled", batch_id=str(call.claimed.id))
                    settled.set_result(written.get(call.claimed.id))

    async def _written(self, calls: Sequence[Call]) -> dict[UUID, Settled]:
        for pause in PATIENCE:
            try:
                async with self._ctx.db.tx(ROLE) as tx:
                    return await deliveries.settle(tx, calls, self._outbound.patience)
            except RetryLater:
                await asyncio.sleep(pause)
            except Exception:
                # One of them cannot be written; the others must not go with it.
                if len(calls) == 1:
                    log.exception("Delivery cannot be settled", batch_id=str(calls[0].claimed.id))
                    return {}
                half = len(calls) // 2
                return await self._written(calls[:half]) | await self._written(calls[half:])
        return {}
