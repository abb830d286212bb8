"""Slots as leased rows of the database, if REDIS_URL is not set."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from weighbridge.delivery.slots import table
from weighbridge.delivery.slots.base import Held, SlotLimits
from weighbridge.delivery.slots.leased import Leased
from weighbridge.model.errors import RetryLater
from weighbridge.postgres.pool import Database

ROLE = "weighbridge_deliver"


class PostgresSlots(Leased):
    """Leased rows in weighbridge.slots: see acquire_slots in delivery/functions.sql. Its clock is the database's."""

    keeper = "postgres"

    def __init__(self, db: Database, limits: SlotLimits) -> None:
        super().__init__(limits)
        self._db = db

    async def _exchange(self, giving: Sequence[Held], wanted: Sequence[Held]) -> set[UUID]:
        request = table.SlotRequest(
            site_keys=[held.slot.site_key for held in wanted],
            global_keys=[held.slot.global_key for held in wanted],
            tokens=[held.token for held in wanted],
            per_site=self.limits.per_site,
            per_provider=self.limits.per_provider,
            ttl=self.limits.ttl,
        )
        async with self._db.tx(ROLE) as tx:
            if giving:
                await table.release(tx, [each.token for each in giving])
            return await table.acquire(tx, request)

    async def _give(self, held: Sequence[Held]) -> None:
        async with self._db.tx(ROLE) as tx:
            await table.release(tx, [each.token for each in held])

    async def _close(self) -> None:
        """Nothing to close: the database pool belongs to the application."""

    def _why(self, error: Exception) -> str:
        return error.message if isinstance(error, RetryLater) else "it returns an error"
