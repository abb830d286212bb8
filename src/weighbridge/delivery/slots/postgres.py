"""Slots as leased rows of the database, if REDIS_URL is not set."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from weighbridge.delivery.slots import table
from weighbridge.delivery.slots.base import Slot, SlotLimits, global_key, site_key
from weighbridge.delivery.slots.leased import LeasedSlots
from weighbridge.model.errors import RetryLater
from weighbridge.postgres import roles
from weighbridge.postgres.transactions import Database


class PostgresSlots(LeasedSlots):
    """Leased rows in weighbridge.slots: see acquire_slots in delivery/functions.sql. Its clock is the database's."""

    backend = "postgres"

    def __init__(self, db: Database, limits: SlotLimits) -> None:
        super().__init__(limits)
        self._db = db

    async def _exchange(self, releasing: Sequence[Slot], wanted: Sequence[Slot]) -> set[UUID]:
        request = table.SlotRequest(
            site_keys=[site_key(slot.key) for slot in wanted],
            global_keys=[global_key(slot.key) for slot in wanted],
            tokens=[slot.token for slot in wanted],
            per_site=self.limits.per_site,
            per_provider=self.limits.per_provider,
            ttl=self.limits.ttl,
        )
        async with self._db.tx(roles.DELIVER) as tx:
            if releasing:
                await table.release(tx, [each.token for each in releasing])
            return await table.acquire(tx, request)

    async def _release_slots(self, slots: Sequence[Slot]) -> None:
        async with self._db.tx(roles.DELIVER) as tx:
            await table.release(tx, [each.token for each in slots])

    async def _close(self) -> None:
        """Nothing to close: the database pool belongs to the application."""

    def _why(self, error: Exception) -> str:
        return error.message if isinstance(error, RetryLater) else "it returns an error"
