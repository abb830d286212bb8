"""Queries of conversions and groups: lists and single rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from weighbridge.delivery.group_key import GroupKey
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named

_SQL = load(__name__)

MOST_COUNTED = 10_000  # upper limit when counting the rows of a group
SALE_CANCELED = "SALE_CANCELED"  # such a conversion is not retried
_PAGES = {
    None: "recent_conversions",
    "QUEUED": "waiting_conversions",
    "RETRY": "waiting_conversions",
    "PROCESSING": "processing_conversions",
    "COMPLETED": "completed_conversions",
    "FAILED": "failed_conversions",
}


@dataclass(frozen=True)
class ConversionRow:
    """A row of offline_conversion_queue without personal data (click id and digests)."""

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
class ConversionFilter:
    """Filters for the conversions of a workspace; None: any."""

    workspace_id: UUID
    site_id: UUID | None = None
    provider_key: str | None = None
    status: str | None = None
    category: str | None = None
    order_id: str | None = None


@dataclass(frozen=True)
class OrderedSale:
    """A sale with a given order id, and its site."""

    sale_id: UUID
    site_id: UUID
    site_name: str


@dataclass(frozen=True)
class ConversionCursor:
    """The cursor of a page: time, secondary key and id of its last row."""

    moment: str
    tiebreaker: str
    sale_id: UUID
    provider_key: str


@dataclass(frozen=True)
class ListedConversion:
    """A conversion of a page, and its cursor."""

    sale_id: UUID
    provider_key: str
    cursor: ConversionCursor


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
    in_call: int  # PROCESSING: in a call, or claimed for the next one
    failed: int  # at most MOST_COUNTED
    credentials_version: int | None
    key_id: str | None
    refused_at: datetime | None
    refused_code: str | None
    attempts_total: int
    completed_total: int
    failed_total: int
    retry_total: int

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.site_id, self.provider_key)


@dataclass(frozen=True)
class ConversionStatus:
    """The status of a conversion with a provider."""

    sale_id: UUID
    provider_key: str
    workspace_id: UUID
    status: str
    code: str | None  # of its last error

    @property
    def canceled(self) -> bool:
        return self.code == SALE_CANCELED


@dataclass(frozen=True)
class BlockedGroup:
    """A blocked group: its credentials are refused, or its circuit is open."""

    site_id: UUID
    site_name: str
    provider_key: str
    refused: bool
    code: str | None  # the provider's code for the refusal
    next_probe_at: datetime | None  # if its circuit is open


async def page(
    tx: Tx, wanted: ConversionFilter, behind: ConversionCursor | None, limit: int
) -> list[ListedConversion]:
    """A page: newest first; queued conversions in delivery order, unless the filter names an order."""
    params = {
        "workspace": wanted.workspace_id,
        "site": wanted.site_id,
        "provider": wanted.provider_key,
        "status": wanted.status,
        "category": wanted.category,
        "order": wanted.order_id,
        "moment": behind and behind.moment,
        "tiebreaker": (behind and behind.tiebreaker) or None,
        "sale": behind and behind.sale_id,
        "key": behind and behind.provider_key,
        "limit": limit,
    }
    name = _PAGES[wanted.status] if wanted.order_id is None else "ordered_conversions"
    rows = await fetch_all(tx, _SQL[name], params)
    return [
        ListedConversion(sale, key, ConversionCursor(moment, tiebreaker, sale, key))
        for sale, key, moment, tiebreaker in rows
    ]


async def get(tx: Tx, found: Sequence[ListedConversion]) -> list[ConversionRow]:
    """All fields of the conversions of a page, in its order."""
    params = ([each.sale_id for each in found], [each.provider_key for each in found])
    return [ConversionRow(**row) for row in await fetch_named(tx, _SQL["get_conversions"], params)]


async def of_sale(tx: Tx, sale_id: UUID) -> list[ConversionRow]:
    """A sale's conversions, one per provider."""
    return [
        ConversionRow(**row) for row in await fetch_named(tx, _SQL["get_conversions"], ([sale_id], [None]))
    ]


async def ordered(
    tx: Tx, order_id: str, workspace_id: UUID | None, site_id: UUID | None, limit: int = 11
) -> list[OrderedSale]:
    """Sales with this order id, at most one per site; of all workspaces if none is given."""
    params = {"order": order_id, "workspace": workspace_id, "site": site_id, "limit": limit}
    return [OrderedSale(**row) for row in await fetch_named(tx, _SQL["sales_of_order"], params)]


async def groups(
    tx: Tx,
    workspace_id: UUID | None,
    *,
    site_id: UUID | None = None,
    provider_key: str | None = None,
    after: GroupKey | None = None,
    limit: int = 1000,
) -> list[GroupStatus]:
    """The status of groups, by site and provider; of all workspaces if none is given."""
    params = {
        "workspace": workspace_id,
        "site": site_id,
        "provider": provider_key,
        "after_site": after and after.site_id,
        "after_provider": after and after.provider_key,
        "limit": limit,
        "most": MOST_COUNTED,
    }
    return [GroupStatus(**row) for row in await fetch_named(tx, _SQL["group_statuses"], params)]


async def blocked_groups(tx: Tx) -> list[BlockedGroup]:
    """Groups with refused credentials or an open circuit that are in use or have queued rows."""
    return [BlockedGroup(**row) for row in await fetch_named(tx, _SQL["blocked_groups"])]


async def statuses(tx: Tx, sales: Sequence[UUID], provider_key: str | None) -> list[ConversionStatus]:
    """The status of sales with their providers, or with the given one."""
    params = {"sales": list(sales), "provider": provider_key}
    return [ConversionStatus(**row) for row in await fetch_named(tx, _SQL["statuses"], params)]
