"""LISTEN: a notification means "look now". Polling remains the fallback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from psycopg import OperationalError, sql

from weighbridge.model.errors import RetryLater
from weighbridge.model.retry import LISTEN
from weighbridge.postgres.connections import CHECK_SECONDS, connect

CHECK_EVERY = 15.0  # seconds without a notification, after which the server must show that it is still there


async def notifications(
    url: str, channel: str, *, check_every: float = CHECK_EVERY, answer: float = CHECK_SECONDS
) -> AsyncIterator[str]:
    """Payloads of a channel, without end. An empty payload also follows every (re)connection: check at once."""
    pauses = LISTEN.pauses()
    while True:
        try:
            connection = await connect(url, limit=answer)
        except RetryLater:
            await asyncio.sleep(next(pauses))
            continue
        pauses = LISTEN.pauses()
        try:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            yield ""
            while True:
                async for notification in connection.notifies(timeout=check_every):
                    yield notification.payload
                await connection.execute("SELECT")  # raises if no answer arrives
        except OperationalError:
            continue  # and connect again
        finally:
            await connection.close()
