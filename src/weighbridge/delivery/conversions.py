"""Queries of conversions and groups: lists, single rows, the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from weighbridge.postgres.pool import Tx, fetch_all, fetch_named
from weighbridge.postgres.queries import load

_SQL = load(__name__)

MOST_COUNTED = 10_000  # upper limit when counting the rows of a group
_PAGES = {
    None: "recent_conversions",
    "QUEUED": "waiting_conversions",
    "RETRY": "waiting_conversions",
    "PROCESSING": "processing_conversions",
    "COMPLETED": "completed_conversions",
    "FAILED": "failed_conversions",
}


@dataclass(frozen=True)
class Shown:
    """A row of offline_conversion_queue without personal data (click id and hashes)."""

    sale_id: UUID
    site_id: UUID
    provider_key: str
    status: str
    order_id: str
    click_type: str
    occurred_at: datetime
    clicked_at: datetime | None
    value: Decimal | None
    currency: str | None
    expires_at: datetime | None
    next_retry_at: datetime | None
    claimed_at: datetime | None
    batch_id: UUID | None
    attempt_count: int
    retry_count: int
    last_error: str | None
    uploaded_at: datetime | None
    provider_request_id: str | None
    provider_error_code: str | None
    provider_error_category: str | None
    duplicate: bool
    confirmation: str | None
    confirmed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    upload_id: UUID | None
    line: int | None


@dataclass(frozen=True)
class Wanted:
    """Filters for the conversions of a workspace; None: any."""

    workspace_id: UUID
    site_id: UUID | None = None
    provider_key: str | None = None
    status: str | None = None
    category: str | None = None
    order_id: str | None = None


@dataclass(frozen=True)
class Ordered:
    """A sale with a given order id, and its site."""

    sale_id: UUID
    site_id: UUID
    site_name: str


@dataclass(frozen=True)
class Cursor:
    """The cursor of a page: time, secondary key and id of its last row."""

    moment: str
    beside: str
    sale_id: UUID
    provider_key: str


@dataclass(frozen=True)
class Found:
    """A conversion of a page, and its cursor."""

    sale_id: UUID
    provider_key: str
    cursor: Cursor


@dataclass(frozen=True)
class Entry:
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
class GroupStatus:
    """A site and a provider: queued and failed conversions, and what blocks deliveries."""

    site_id: UUID
    site_name: str
    provider_key: str
    in_use: bool  # new sales of the site are sent to it
    paused_until: datetime | None
    state: str  # of the breaker
    failure_count: int
    next_probe_at: datetime | None
    waiting: int  # at most MOST_COUNTED
    in_call: int  # PROCESSING: part of a call in progress
    failed: int  # at most MOST_COUNTED
    credentials_version: int | None
    key_id: str | None
    refused_at: datetime | None
    refused_code: str | None
    attempts_total: int
    completed_total: int
    failed_total: int
    retry_total: int


async def page(tx: Tx, wanted: Wanted, behind: Cursor | None, limit: int) -> list[Found]:
    """A page: newest first; queued conversions in delivery order, unless the filter names an order."""
    params = {
        "workspace": wanted.workspace_id,
        "site": wanted.site_id,
        "provider": wanted.provider_key,
        "status": wanted.status,
        "category": wanted.category,
        "order": wanted.order_id,
        "moment": behind and behind.moment,
        "beside": (behind and behind.beside) or None,
        "sale": behind and behind.sale_id,
        "key": behind and behind.provider_key,
        "limit": limit,
    }
    name = _PAGES[wanted.status] if wanted.order_id is None else "ordered_conversions"
    rows = await fetch_all(tx, _SQL[name], params)
    return [Found(sale, key, Cursor(moment, beside, sale, key)) for sale, key, moment, beside in rows]


async def get(tx: Tx, found: Sequence[Found]) -> list[Shown]:
    """All fields of the conversions of a page, in its order."""
    params = ([each.sale_id for each in found], [each.provider_key for each in found])
    return [Shown(**row) for row in await fetch_named(tx, _SQL["get_conversions"], params)]


async def of_sale(tx: Tx, sale_id: UUID) -> list[Shown]:
    """A sale's conversions, one per provider."""
    return [Shown(**row) for row in await fetch_named(tx, _SQL["get_conversions"], ([sale_id], [None]))]


async def ordered(
    tx: Tx, order_id: str, workspace_id: UUID | None, site_id: UUID | None, limit: int = 11
) -> list[Ordered]:
    """Sales with this order id, at most one per site; of all workspaces if none is given."""
    params = {"order": order_id, "workspace": workspace_id, "site": site_id, "limit": limit}
    return [Ordered(**row) for row in await fetch_named(tx, _SQL["sales_of_order"], params)]


async def ledger_of_batch(tx: Tx, batch_id: UUID) -> list[Entry]:
    """The STARTED entry of a call and, if it has ended, FINISHED."""
    return [Entry(**row) for row in await fetch_named(tx, _SQL["ledger_of_batch"], (batch_id,))]


async def ledger_of_site(tx: Tx, site_id: UUID, provider_key: str | None, limit: int) -> list[Entry]:
    """The entries of a group, newest first."""
    params = {"site": site_id, "provider": provider_key, "limit": limit}
    return [Entry(**row) for row in await fetch_named(tx, _SQL["ledger_of_site"], params)]


async def groups(
    tx: Tx,
    workspace_id: UUID | None,
    *,
    site_id: UUID | None = None,
    provider_key: str | None = None,
    after: tuple[UUID, str] | None = None,
    limit: int = 1000,
) -> list[GroupStatus]:
    """The status of groups, by site and provider; of all workspaces if none is given."""
    params = {
        "workspace": workspace_id,
        "site": site_id,
        "provider": provider_key,
        "after_site": after and after[0],
        "after_provider": after and after[1],
        "limit": limit,
        "most": MOST_COUNTED,
    }
    return [GroupStatus(**row) for row in await fetch_named(tx, _SQL["groups_standing"], params)]
