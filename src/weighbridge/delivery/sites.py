"""Queries of sites and their providers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named

_SQL = load(__name__)


@dataclass(frozen=True)
class Site:
    id: UUID
    workspace_id: UUID
    name: str
    providers: tuple[str, ...]
    created_at: datetime


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


async def get_site(tx: Tx, workspace_id: UUID | None, site_id: UUID) -> Site | None:
    params = {"workspace": workspace_id, "id": site_id, "after": "", "limit": 1}
    return _first(await fetch_named(tx, _SQL["get_sites"], params))


async def named(tx: Tx, name: str, workspace_id: UUID | None) -> list[Site]:
    """Sites with this name: at most two, to detect ambiguity between workspaces."""
    rows = await fetch_named(tx, _SQL["sites_named"], {"name": name, "workspace": workspace_id})
    return [_site(row) for row in rows]


async def names(tx: Tx, workspace_id: UUID | None) -> list[str]:
    """The first thousand names, for suggestions after a typo."""
    return [name for (name,) in await fetch_all(tx, _SQL["site_names"], {"workspace": workspace_id})]


async def get_sites(tx: Tx, workspace_id: UUID, after: str, limit: int) -> list[Site]:
    """A workspace's sites by name, a page at a time."""
    params = {"workspace": workspace_id, "id": None, "after": after, "limit": limit}
    return [_site(row) for row in await fetch_named(tx, _SQL["get_sites"], params)]


async def existing(tx: Tx, workspace_id: UUID, ids: Sequence[UUID]) -> set[UUID]:
    """The given ids that are sites of the workspace."""
    return {id_ for (id_,) in await fetch_all(tx, _SQL["existing_sites"], (workspace_id, list(ids)))}


async def providers(tx: Tx) -> list[str]:
    """Every provider that the database knows."""
    return [key for (key,) in await fetch_all(tx, _SQL["known_providers"])]


def _list(providers: Sequence[str] | None) -> list[str] | None:
    return None if providers is None else list(providers)


def _first(rows: Sequence[dict[str, Any]]) -> Site | None:
    return _site(rows[0]) if rows else None


def _site(row: dict[str, Any]) -> Site:
    return Site(**{**row, "providers": tuple(row["providers"])})
