"""What the tests of usage, quota and retention share: files that are sent, and counters that are moved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from weighbridge.delivery.context import Context
from weighbridge.postgres.transactions import Database
from weighbridge.uploads.check_request import Request
from weighbridge.uploads.receive import Received, receive

USAGE = "SELECT total_bytes, total_sources, month_bytes, interpretation_count_month, billing_month FROM storage_usage"
CSV = b"Day,Campaign name,Amount spent (USD)\n2025-01-01,Spring,10.50\n"


def month_of(when: datetime) -> str:
    return f"{when:%Y-%m}"


def until_next_month(query: Any) -> timedelta:
    """From the database's now to some hours into the next month."""
    ((now, begins),) = query("SELECT weighbridge.now(), weighbridge.next_month()")
    return begins - now + timedelta(hours=3)


async def increment(db: Database, workspace: UUID, user: UUID, size: int) -> None:
    async with db.tx("weighbridge_intake", workspace) as tx:
        await tx.execute("SELECT weighbridge.increment_storage_usage(%s, %s)", (user, size))


async def send(ctx: Context, workspace: UUID, content: bytes = CSV, **said: Any) -> Received:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    return await receive(ctx, Request(workspace_id=workspace, platform="meta", **said), chunks())
