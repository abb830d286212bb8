"""Queries of the ledger: calls to providers and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.delivery.conversions import MOST_COUNTED
from weighbridge.delivery.group_key import GroupKey
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named

_SQL = load(__name__)


@dataclass(frozen=True)
class LedgerFilter:
    """Filters for calls: workspace, site and provider; None: any."""

    workspace_id: UUID
    site_id: UUID | None = None
    provider_key: str | None = None


@dataclass(frozen=True)
class LedgerEntry:
    """A row of provider_upload_attempts."""

    batch_id: UUID
    site_id: UUID
    provider_key: str
    phase: str
    claimed_count: int | None
    completed_count: int | None
    failed_count: int | None
    retry_count: int | None
    duration_ms: int | None
    provider_request_id: str | None
    error_code: str | None
    error_category: str | None
    created_at: datetime


@dataclass(frozen=True)
class RecentCall:
    """The STARTED and FINISHED entries of one call, combined."""

    batch_id: UUID
    site_id: UUID
    site_name: str
    provider_key: str
    started_at: datetime
    finished_at: datetime | None  # None: in progress, or its worker has stopped
    claimed_count: int
    completed_count: int | None
    failed_count: int | None
    retry_count: int | None
    duration_ms: int | None
    provider_request_id: str | None
    error_code: str | None
    error_category: str | None


@dataclass(frozen=True)
class RecentCalls:
    """Counts of a group for the last 24 hours."""

    calls: int
    completed: int


@dataclass(frozen=True)
class ErrorCounts:
    """Counts of the conversions with one error."""

    category: str | None
    code: str | None
    failed: int  # at most MOST_COUNTED
    waiting: int  # waiting for a retry, at most MOST_COUNTED
    sentence: str | None  # an example message


async def of_batch(tx: Tx, batch_id: UUID) -> list[LedgerEntry]:
    """The STARTED entry of a call and, if it has ended, FINISHED."""
    return [LedgerEntry(**row) for row in await fetch_named(tx, _SQL["ledger_of_batch"], (batch_id,))]


async def of_site(tx: Tx, site_id: UUID, provider_key: str | None, limit: int) -> list[LedgerEntry]:
    """The entries of a group, newest first."""
    params = {"site": site_id, "provider": provider_key, "limit": limit}
    return [LedgerEntry(**row) for row in await fetch_named(tx, _SQL["ledger_of_site"], params)]


async def recent(tx: Tx, watched: LedgerFilter, limit: int) -> list[RecentCall]:
    """Recent calls, newest first."""
    return [
        RecentCall(**row)
        for row in await fetch_named(tx, _SQL["recent_calls"], _params(watched, limit=limit))
    ]


async def recent_counts(tx: Tx, groups: Sequence[GroupKey]) -> dict[GroupKey, RecentCalls]:
    params = {"sites": [site for site, _ in groups], "providers": [provider for _, provider in groups]}
    return {
        GroupKey(site, provider): RecentCalls(*rest)
        for site, provider, *rest in await fetch_all(tx, _SQL["recent_counts"], params)
    }


async def errors(tx: Tx, watched: LedgerFilter) -> list[ErrorCounts]:
    """ErrorCounts by category and code, most failures first."""
    return [
        ErrorCounts(**row)
        for row in await fetch_named(tx, _SQL["errors"], _params(watched, most=MOST_COUNTED))
    ]


def _params(watched: LedgerFilter, **more: int) -> dict[str, object]:
    return {
        "workspace": watched.workspace_id,
        "site": watched.site_id,
        "provider": watched.provider_key,
        **more,
    }
