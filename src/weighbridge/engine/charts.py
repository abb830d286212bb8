"""The history of a workspace for the health page, and its open alerts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all

_SQL = load(__name__)


@dataclass(frozen=True)
class Interval:
    """Uploads that ended in one interval."""

    begins: datetime
    completed: int
    failed: int
    rows: int  # written to production
    seconds: float | None  # average time from first claim to end, of successful uploads


@dataclass(frozen=True)
class OpenAlert:
    condition: str
    severity: str
    message: str
    opened_at: datetime
    upload_id: UUID | None  # the upload that it is about, if it is one
    site_id: UUID | None


@dataclass(frozen=True)
class DeadLetter:
    """A failed upload that no operator has dismissed or retried."""

    upload_id: str
    filename: str | None
    error_text: str | None
    finished_at: datetime


async def intervals(tx: Tx, each: timedelta, number: int) -> list[Interval]:
    """The last intervals of the transaction's workspace, oldest first."""
    rows = await fetch_all(tx, _SQL["intervals"], {"each": each, "number": number})
    return [Interval(*row) for row in rows]


async def dead_letters(tx: Tx, limit: int) -> list[DeadLetter]:
    return [DeadLetter(*row) for row in await fetch_all(tx, _SQL["dead_letters"], (limit,))]


async def alerts(tx: Tx, *, of_service: bool) -> list[OpenAlert]:
    """Open alerts about the workspace's uploads and sites; with `of_service`, also those about all workspaces."""
    rows = await fetch_all(tx, _SQL["open_alerts"], {"of_service": of_service})
    return [OpenAlert(*row) for row in rows]
