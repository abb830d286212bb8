"""Figures of uploads: backlog, failures and history. For the health page, for alerts and for `weighbridge doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)


@dataclass(frozen=True)
class WorkspaceFigures:
    """Figures of one workspace."""

    backlog_count: int
    failed_24h: int
    stale_runs: int
    avg_processing_seconds: float | None  # from first claim to end, of all successful uploads
    last_failed_batch: str | None
    last_failed_at: datetime | None


@dataclass(frozen=True)
class QueueCounts:
    """Contents of the queue at one moment."""

    dead_letters: int
    backlog: int


@dataclass(frozen=True)
class Interval:
    """Uploads that ended in one interval."""

    begins: datetime
    completed: int
    failed: int
    rows: int  # written to production
    seconds: float | None  # average time from first claim to end, of successful uploads


@dataclass(frozen=True)
class DeadLetter:
    """A failed upload that no operator has dismissed or retried."""

    upload_id: str
    filename: str | None
    error_text: str | None
    finished_at: datetime


@dataclass(frozen=True)
class DeadLetters:
    """All failed uploads that no operator has dismissed or retried."""

    count: int
    workspace_id: UUID | None  # of the newest


async def of_workspace(tx: Tx) -> WorkspaceFigures:
    """Figures of the transaction's workspace."""
    (row,) = await fetch_named(tx, _SQL["workspace_figures"])
    return WorkspaceFigures(**row)


async def watch_queues(tx: Tx, dead_letters: int, backlog: int) -> QueueCounts:
    """Raise or withdraw alerts: more dead letters, or more waiting uploads, than these limits."""
    row = await fetch_one(tx, _SQL["watch_queues"], (dead_letters, backlog))
    assert row is not None
    return QueueCounts(*row)


async def intervals(tx: Tx, each: timedelta, number: int) -> list[Interval]:
    """The last intervals of the transaction's workspace, oldest first."""
    rows = await fetch_all(tx, _SQL["intervals"], {"each": each, "number": number})
    return [Interval(*row) for row in rows]


async def dead_letters(tx: Tx, limit: int) -> list[DeadLetter]:
    return [DeadLetter(*row) for row in await fetch_all(tx, _SQL["dead_letters"], (limit,))]


async def count_dead_letters(tx: Tx) -> DeadLetters:
    [row] = await fetch_all(tx, _SQL["count_dead_letters"])
    return DeadLetters(*row)


async def stale_runs(tx: Tx) -> int:
    """Runs that started over an hour ago and have no live lease."""
    [(count,)] = await fetch_all(tx, _SQL["stale_runs"])
    return int(count)
