"""The database clock, the only source of time. Tests set it."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_one

_SQL = load(__name__)


async def now(tx: Tx) -> datetime:
    row = await fetch_one(tx, _SQL["now"])
    assert row is not None
    return cast(datetime, row[0])
