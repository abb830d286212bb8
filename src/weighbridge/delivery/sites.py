"""Queries of sites, their sales, and the operations on their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)


@dataclass(frozen=True)
class Site:
    id: UUID
    workspace_id: UUID
    name: str
    providers: tuple[str, ...]
    created_at: datetime


@dataclass(frozen=True)
class Sale:
    """A confirmed sale to write. Its repr shows no personal data."""

    site_id: UUID
    order_id: str
    occurred_at: datetime
    clicked_at: datetime | None = None
    value: Decimal | None = None
    currency: str | None = None
    clicks: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # gclid, … and the id
    user_data: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # hashes
    conversation_id: UUID | None = None

    @property
    def key(self) -> tuple[UUID, str]:
        return self.site_id, self.order_id


@dataclass(frozen=True)
class QueuedDelivery:
    """The queue row of a sale for one provider."""

    sale_id: UUID
    provider_key: str
    status: str


@dataclass(frozen=True)
class Requeue:
    """Filters for failed conversions to requeue; None: any."""

    workspace_id: UUID
    actor: str
    sales: Sequence[UUID] | None = None
    site_id: UUID | None = None
    provider_key: str | None = None
    category: str | None = None
    code: str | None = None


async def make(tx: Tx, workspace_id: UUID, name: str, providers: Sequence[str] | None) -> Site | None:
    """Create a site; None if the name is taken."""
    params = {"workspace": workspace_id, "name": name, "providers": _list(providers)}
    return _first(await fetch_named(tx, _SQL["make_site"], params))


async def change(
    tx: Tx, workspace_id: UUID, site_id: UUID, name: str | None, providers: Sequence[str] | None
) -> Site | None:
    """Change a site; raises RowFault if another site has the name."""
    params = {"workspace": workspace_id, "id": site_id, "name": name, "providers": _list(providers)}
    return _first(await fetch_named(tx, _SQL["change_site"], params))


async def get(tx: Tx, workspace_id: UUID | None, site_id: UUID) -> Site | None:
    params = {"workspace": workspace_id, "id": site_id, "after": "", "limit": 1}
    return _first(await fetch_named(tx, _SQL["get_sites"], params))


async def named(tx: Tx, name: str, workspace_id: UUID | None) -> list[Site]:
    """Sites with this name: at most two, to detect ambiguity between workspaces."""
    rows = await fetch_named(tx, _SQL["sites_named"], {"name": name, "workspace": workspace_id})
    return [_site(row) for row in rows]


async def names(tx: Tx, workspace_id: UUID | None) -> list[str]:
    """The first thousand names, for suggestions after a typo."""
    return [name for (name,) in await fetch_all(tx, _SQL["site_names"], {"workspace": workspace_id})]


async def page(tx: Tx, workspace_id: UUID, after: str, limit: int) -> list[Site]:
    """A workspace's sites by name, a page at a time."""
    params = {"workspace": workspace_id, "id": None, "after": after, "limit": limit}
    return [_site(row) for row in await fetch_named(tx, _SQL["get_sites"], params)]


async def existing(tx: Tx, workspace_id: UUID, ids: Sequence[UUID]) -> set[UUID]:
    """The given ids that are sites of the workspace."""
    return {id_ for (id_,) in await fetch_all(tx, _SQL["existing_sites"], (workspace_id, list(ids)))}


async def providers(tx: Tx) -> list[str]:
    """Every provider that the database knows."""
    return [key for (key,) in await fetch_all(tx, _SQL["known_providers"])]


async def write_sales(tx: Tx, workspace_id: UUID, sales: Sequence[Sale]) -> dict[tuple[UUID, str], bool]:
    """Write sales; returns by key whether each was new. Unchanged sales are not returned."""
    params = {"workspace": workspace_id, "sales": Jsonb([_to_json(sale) for sale in sales])}
    return {
        (site, order): created for site, order, created in await fetch_all(tx, _SQL["write_sales"], params)
    }


async def sale_ids(
    tx: Tx, workspace_id: UUID, keys: Sequence[tuple[UUID, str]]
) -> dict[tuple[UUID, str], UUID]:
    """The ids of sales."""
    params = {
        "workspace": workspace_id,
        "sites": [site for site, _ in keys],
        "orders": [order for _, order in keys],
    }
    return {(site, order): id_ for site, order, id_ in await fetch_all(tx, _SQL["sale_ids"], params)}


async def deliveries_of(tx: Tx, sales: Sequence[UUID]) -> list[QueuedDelivery]:
    return [QueuedDelivery(*row[:3]) for row in await fetch_all(tx, _SQL["deliveries_of"], (list(sales),))]


async def requeue(tx: Tx, selection: Requeue) -> int:
    """Retry failed conversions; returns how many."""
    params = {
        "workspace": selection.workspace_id,
        "sales": None if selection.sales is None else list(selection.sales),
        "site": selection.site_id,
        "provider": selection.provider_key,
        "category": selection.category,
        "code": selection.code,
        "actor": selection.actor,
    }
    row = await fetch_one(tx, _SQL["requeue_deliveries"], params)
    assert row is not None
    return int(row[0])


def _to_json(sale: Sale) -> dict[str, Any]:
    return {
        "site_id": str(sale.site_id),
        "order_id": sale.order_id,
        "conversation_id": sale.conversation_id and str(sale.conversation_id),
        "occurred_at": sale.occurred_at.isoformat(),
        "clicked_at": sale.clicked_at and sale.clicked_at.isoformat(),
        "value": None if sale.value is None else str(sale.value),
        "currency": sale.currency,
        **dict(sale.clicks),
        "user_data": dict(sale.user_data),
    }


def _list(providers: Sequence[str] | None) -> list[str] | None:
    return None if providers is None else list(providers)


def _first(rows: Sequence[dict[str, Any]]) -> Site | None:
    return _site(rows[0]) if rows else None


def _site(row: dict[str, Any]) -> Site:
    return Site(**{**row, "providers": tuple(row["providers"])})
