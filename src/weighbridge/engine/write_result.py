"""The result of finished work → the database, also if that is unavailable for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import LiteralString, TypeVar

from weighbridge.model.errors import RetryLater
from weighbridge.model.retry import RESULT
from weighbridge.postgres.transactions import Database, Tx

Result = TypeVar("Result")


async def write_result(
    db: Database, write: Callable[[Tx], Awaitable[Result]], role: LiteralString | None = None
) -> Result:
    """Run `write` in a transaction, again after each RetryLater. Raises the last one: by then the lease has expired."""
    pauses = RESULT.pauses()
    while True:
        try:
            async with db.tx(role) as tx:
                return await write(tx)
        except RetryLater:
            pause = next(pauses, None)
            if pause is None:
                raise
            await asyncio.sleep(pause)
