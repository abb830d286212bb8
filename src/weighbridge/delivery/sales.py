"""Queries of sales. A trigger queues the conversions of each sale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all

_SQL = load(__name__)


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
