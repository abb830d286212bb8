"""The time, by the only clock there is."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from weighbridge.db.pool import Tx, fetch_one
from weighbridge.db.queries import load

_SQL = load("clock")


async def now(tx: Tx) -> datetime:
    row = await fetch_one(tx, _SQL["now"])
    assert row is not None
    return cast(datetime, row[0])
