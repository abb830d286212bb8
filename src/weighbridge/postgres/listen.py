"""LISTEN: a notification means "look now". Polling remains the fallback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from psycopg import OperationalError, sql

from weighbridge.model.errors import RetryLater
from weighbridge.model.retry import LISTEN
from weighbridge.postgres.transactions import connect


async def notifications(url: str, channel: str) -> AsyncIterator[str]:
    """Payloads of a channel, without end. An empty payload also follows every (re)connection: check at once."""
    pauses = LISTEN.pauses()
    while True:
        try:
            connection = await connect(url)
        except RetryLater:
            await asyncio.sleep(next(pauses))
            continue
        pauses = LISTEN.pauses()
        try:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            yield ""
            async for notification in connection.notifies():
                yield notification.payload
        except OperationalError:
            continue  # and connect again
        finally:
            await connection.close()
