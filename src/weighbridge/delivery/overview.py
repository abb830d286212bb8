"""Queries for operators: deliveries by group, credentials, breaker states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.delivery.queue import Group, SealedCredentials
from weighbridge.delivery.sites import Site
from weighbridge.postgres.pool import Tx, fetch_all, fetch_named, fetch_one
from weighbridge.postgres.queries import load

_SQL = load(__name__)

SALE_CANCELED = "SALE_CANCELED"  # such a conversion is not retried


@dataclass(frozen=True)
class State:
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
class Failed:
    """Filters for failed conversions; None: any."""

    workspace_id: UUID | None = None
    site_id: UUID | None = None
    provider_key: str | None = None
    category: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class Troubled:
    """A blocked group: its credentials are refused, or its circuit is open."""

    site_id: UUID
    site_name: str
    provider_key: str
    refused: bool
    code: str | None  # the provider's code for the refusal
    next_probe_at: datetime | None  # if its circuit is open


async def sites_called(tx: Tx, name: str, workspace_id: UUID | None) -> list[Site]:
    """Sites with this name: at most two, to detect ambiguity between workspaces."""
    rows = await fetch_named(tx, _SQL["sites_called"], {"name": name, "workspace": workspace_id})
    return [Site(**{**row, "providers": tuple(row["providers"])}) for row in rows]


async def site_names(tx: Tx, workspace_id: UUID | None) -> list[str]:
    """The first thousand names, for suggestions after a typo."""
    return [name for (name,) in await fetch_all(tx, _SQL["site_names"], {"workspace": workspace_id})]


async def probe_rows(tx: Tx, group: Group) -> int | None:
    """How many rows a probe might send now; None: no probe is due, or another worker sends it."""
    row = await fetch_one(tx, _SQL["probe_rows"], (group.site_id, group.provider_key))
    return row[0] if row else None


async def next_due(tx: Tx) -> datetime | None:
    """The earliest time of all delayed rows; None: no row is delayed."""
    row = await fetch_one(tx, _SQL["next_due"])
    return row[0] if row else None


async def troubled(tx: Tx) -> list[Troubled]:
    """Groups with refused credentials or an open circuit that are in use or have queued rows."""
    return [Troubled(**row) for row in await fetch_named(tx, _SQL["troubled"])]


async def sealed_otherwise(
    tx: Tx, key_id: str, after: SealedCredentials | None, limit: int
) -> list[SealedCredentials]:
    """A page of credentials encrypted with another key than this one, locked."""
    params = {
        "key": key_id,
        "site": after and after.site_id,
        "provider": after and after.provider_key,
        "limit": limit,
    }
    return [SealedCredentials(**row) for row in await fetch_named(tx, _SQL["sealed_otherwise"], params)]


async def reseal(tx: Tx, sealed: SealedCredentials) -> bool:
    """Replace credentials by the same values under another key. False: they were changed or deleted meanwhile."""
    row = await fetch_one(
        tx,
        _SQL["reseal_credentials"],
        (
            sealed.site_id,
            sealed.provider_key,
            sealed.version,
            sealed.key_id,
            sealed.nonce,
            sealed.ciphertext,
        ),
    )
    return bool(row and row[0])


async def keys_in_use(tx: Tx) -> dict[str, int]:
    """Number of credentials by the id of the key that encrypts them."""
    return dict(await fetch_all(tx, _SQL["keys_in_use"]))


async def states(tx: Tx, sales: Sequence[UUID], provider_key: str | None) -> list[State]:
    """The status of sales with their providers, or with the given one."""
    params = {"sales": list(sales), "provider": provider_key}
    return [State(**row) for row in await fetch_named(tx, _SQL["states"], params)]


async def failed_of(tx: Tx, wanted: Failed) -> dict[UUID, int]:
    """How many conversions would be retried, by workspace."""
    params = {
        "workspace": wanted.workspace_id,
        "site": wanted.site_id,
        "provider": wanted.provider_key,
        "category": wanted.category,
        "code": wanted.code,
    }
    return dict(await fetch_all(tx, _SQL["failed_of"], params))
