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

SALE_CANCELED = "SALE_CANCELED"  # such a conversion is not tried again


@dataclass(frozen=True)
class State:
    """How a conversion stands with a provider."""

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
    """Which failed conversions; None: whatever it is."""

    workspace_id: UUID | None = None
    site_id: UUID | None = None
    provider_key: str | None = None
    category: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class Troubled:
    """A group to which nothing is sent until somebody does something, or its probe succeeds."""

    site_id: UUID
    site_name: str
    provider_key: str
    refused: bool
    code: str | None  # with which the credentials were refused
    next_probe_at: datetime | None  # where its circuit is open


async def sites_called(tx: Tx, name: str, workspace_id: UUID | None) -> list[Site]:
    """One, or none; two where several workspaces have one."""
    rows = await fetch_named(tx, _SQL["sites_called"], {"name": name, "workspace": workspace_id})
    return [Site(**{**row, "providers": tuple(row["providers"])}) for row in rows]


async def site_names(tx: Tx, workspace_id: UUID | None) -> list[str]:
    """The first thousand, to find one that is spelled much the same."""
    return [name for (name,) in await fetch_all(tx, _SQL["site_names"], {"workspace": workspace_id})]


async def probe_rows(tx: Tx, group: Group) -> int | None:
    """How many rows a probe might send now; None: it is nobody's time, or another probes."""
    row = await fetch_one(tx, _SQL["probe_rows"], (group.site_id, group.provider_key))
    return row[0] if row else None


async def next_due(tx: Tx) -> datetime | None:
    """When the first of all rows that are put off may be sent; None: none is."""
    row = await fetch_one(tx, _SQL["next_due"])
    return row[0] if row else None


async def troubled(tx: Tx) -> list[Troubled]:
    """Groups whose credentials are refused or whose circuit is open, as far as new sales go to them or rows wait."""
    return [Troubled(**row) for row in await fetch_named(tx, _SQL["troubled"])]


async def sealed_otherwise(
    tx: Tx, key_id: str, after: SealedCredentials | None, limit: int
) -> list[SealedCredentials]:
    """Credentials under another key than this one, a page at a time, locked."""
    params = {
        "key": key_id,
        "site": after and after.site_id,
        "provider": after and after.provider_key,
        "limit": limit,
    }
    return [SealedCredentials(**row) for row in await fetch_named(tx, _SQL["sealed_otherwise"], params)]


async def reseal(tx: Tx, sealed: SealedCredentials) -> bool:
    """The same values under another key. False: there are new ones, or none any more."""
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
    """The ids of the vault's keys that credentials are sealed with, and how many by each."""
    return dict(await fetch_all(tx, _SQL["keys_in_use"]))


async def states(tx: Tx, sales: Sequence[UUID], provider_key: str | None) -> list[State]:
    """How sales stand with their providers, or with this one."""
    params = {"sales": list(sales), "provider": provider_key}
    return [State(**row) for row in await fetch_named(tx, _SQL["states"], params)]


async def failed_of(tx: Tx, wanted: Failed) -> dict[UUID, int]:
    """How many would be tried again, by workspace."""
    params = {
        "workspace": wanted.workspace_id,
        "site": wanted.site_id,
        "provider": wanted.provider_key,
        "category": wanted.category,
        "code": wanted.code,
    }
    return dict(await fetch_all(tx, _SQL["failed_of"], params))
