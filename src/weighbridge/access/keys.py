"""API keys: shown once, stored hashed, bound to a workspace."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_one

_SQL = load(__name__)
SCOPES = ("upload", "read", "operate", "admin")


@dataclass(frozen=True)
class ApiKey:
    id: UUID
    workspace_id: UUID
    name: str
    prefix: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    bounds: tuple[tuple[str, str], ...] | None = None  # fields that an upload token sets for every file

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes


async def create(
    tx: Tx, workspace_id: UUID, name: str, scopes: tuple[str, ...], expires_at: datetime | None
) -> tuple[ApiKey, str]:
    """A new key and its secret. The secret cannot be shown again."""
    secret = f"wb_{secrets.token_urlsafe(32)}"
    row = await fetch_one(
        tx, _SQL["create_key"], (workspace_id, name, secret[:10], _hash(secret), list(scopes), expires_at)
    )
    assert row is not None
    return key_of(row), secret


async def find(tx: Tx, secret: str) -> ApiKey | None:
    """The live key with this secret. The lookup is by hash, so its timing reveals nothing about the secret."""
    row = await fetch_one(tx, _SQL["find_key"], (_hash(secret),))
    return key_of(row) if row else None


async def listing(tx: Tx, workspace_id: UUID | None) -> list[ApiKey]:
    return [key_of(row) for row in await fetch_all(tx, _SQL["list_keys"], {"workspace": workspace_id})]


async def revoke(tx: Tx, key_id: UUID) -> bool:
    return await fetch_one(tx, _SQL["revoke_key"], (key_id,)) is not None


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def key_of(row: tuple[Any, ...]) -> ApiKey:
    id_, workspace, name, prefix, scopes, *times = row
    return ApiKey(id_, workspace, name, prefix, tuple(scopes), *times)
