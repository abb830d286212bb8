"""Queries of the ledger: calls of providers and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.delivery.conversions import MOST_COUNTED
from weighbridge.postgres.pool import Tx, fetch_all, fetch_named
from weighbridge.postgres.queries import load

_SQL = load(__name__)

Key = tuple[UUID, str]  # site and provider


@dataclass(frozen=True)
class Watched:
    """Filters for calls: workspace, site and provider; None: any."""

    workspace_id: UUID
    site_id: UUID | None = None
    provider_key: str | None = None


@dataclass(frozen=True)
class Call:
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
class Lately:
    """Counts of a group for the last 24 hours."""

    calls: int
    completed: int


@dataclass(frozen=True)
class Errors:
    """Counts of the conversions with one error."""

    category: str | None
    code: str | None
    failed: int  # at most MOST_COUNTED
    waiting: int  # waiting for a retry, at most MOST_COUNTED
    sentence: str | None  # an example message


async def recent(tx: Tx, watched: Watched, limit: int) -> list[Call]:
    """Recent calls, newest first."""
    return [Call(**row) for row in await fetch_named(tx, _SQL["recent_calls"], _params(watched, limit=limit))]


async def lately(tx: Tx, groups: Sequence[Key]) -> dict[Key, Lately]:
    params = {"sites": [site for site, _ in groups], "providers": [provider for _, provider in groups]}
    return {
        (site, provider): Lately(*rest)
        for site, provider, *rest in await fetch_all(tx, _SQL["lately"], params)
    }


async def errors(tx: Tx, watched: Watched) -> list[Errors]:
    """Errors by category and code, most failures first."""
    return [
        Errors(**row) for row in await fetch_named(tx, _SQL["errors"], _params(watched, most=MOST_COUNTED))
    ]


def _params(watched: Watched, **more: int) -> dict[str, object]:
    return {
        "workspace": watched.workspace_id,
        "site": watched.site_id,
        "provider": watched.provider_key,
        **more,
    }
