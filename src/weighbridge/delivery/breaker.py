"""The circuit breaker of a group (a site and a provider): which groups may send, probe or only wait.

    CLOSED      the provider works: rows are sent
    OPEN        it failed repeatedly: rows wait until a probe is due
    HALF_OPEN   one worker sends a few rows as a probe: success closes the breaker, another failure opens it again

Calls move the breaker when they are settled: `record_provider_outcome` in functions.sql opens and closes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from weighbridge.delivery.queue import DueGroup
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_one

_SQL = load(__name__)


async def begin_probe(tx: Tx, group: DueGroup, duration: timedelta) -> int | None:
    """OPEN → HALF_OPEN. How many rows the probe may send; None: another worker sends it."""
    row = await fetch_one(tx, _SQL["begin_probe"], (group.site_id, group.provider_key, duration))
    return row[0] if row else None


async def probe_rows(tx: Tx, group: DueGroup) -> int | None:
    """How many rows a probe might send now; None: no probe is due, or another worker sends it."""
    row = await fetch_one(tx, _SQL["probe_rows"], (group.site_id, group.provider_key))
    return row[0] if row else None


async def park(tx: Tx, open_groups: Sequence[DueGroup], limit: int) -> int:
    """Postpone rows of open groups until after their probe; returns how many."""
    params = ([g.site_id for g in open_groups], [g.provider_key for g in open_groups], limit)
    row = await fetch_one(tx, _SQL["park_deliveries"], params)
    return int(row[0]) if row else 0


async def reset(tx: Tx, site_id: UUID, provider_key: str, actor: str) -> bool:
    """For operators: close the breaker and use refused credentials again. False: there was nothing to reset."""
    row = await fetch_one(tx, _SQL["reset_provider"], (site_id, provider_key, actor))
    return bool(row and row[0])
