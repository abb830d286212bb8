"""Browser sessions and upload tokens: the secret that signs them, their expiry, and the key behind them."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from weighbridge.access.keys import ApiKey, key_of
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_one

_SQL = load(__name__)


async def secret(tx: Tx) -> bytes:
    """The signing secret, the same for every process; only the owner of the schema may read it."""
    row = await fetch_one(tx, _SQL["signing_secret"])
    assert row is not None
    return bytes(row[0])


async def expiry(tx: Tx, lasts: timedelta) -> datetime:
    """The end of a period that starts now, by the database's clock."""
    row = await fetch_one(tx, _SQL["expiry"], (lasts,))
    assert row is not None
    ends: datetime = row[0]
    return ends


async def key_behind(tx: Tx, key_id: UUID, expires_at: datetime) -> ApiKey | None:
    """The live key behind a session or token that has not expired. It ends with its key."""
    row = await fetch_one(tx, _SQL["key_behind"], {"key": key_id, "expires_at": expires_at})
    return key_of(row) if row else None
