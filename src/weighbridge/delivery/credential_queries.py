"""Queries of `provider_credentials`: encrypted by the vault, versioned, one row per site and provider."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.queue import BatchRequest
from weighbridge.delivery.vault import Sealed
from weighbridge.postgres.queries import load
from weighbridge.postgres.transactions import Tx, fetch_all, fetch_named, fetch_one

_SQL = load(__name__)


@dataclass(frozen=True)
class CredentialsStatus:
    """Metadata of a site's credentials, without values."""

    site_id: UUID
    provider_key: str
    version: int
    key_id: str
    refused_at: datetime | None
    refused_code: str | None
    updated_at: datetime


@dataclass(frozen=True)
class SealedCredentials:
    """A row of provider_credentials, encrypted."""

    site_id: UUID
    provider_key: str
    version: int
    key_id: str
    nonce: bytes
    ciphertext: bytes

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.site_id, self.provider_key)


async def of_site(tx: Tx, site_id: UUID) -> list[CredentialsStatus]:
    return [
        CredentialsStatus(**row) for row in await fetch_named(tx, _SQL["credentials_of_site"], (site_id,))
    ]


async def of_groups(tx: Tx, groups: Sequence[GroupKey]) -> list[SealedCredentials]:
    params = ([site for site, _ in groups], [provider for _, provider in groups])
    return [SealedCredentials(**row) for row in await fetch_named(tx, _SQL["credentials_of_groups"], params)]


async def by_group(tx: Tx, requests: Sequence[BatchRequest]) -> dict[GroupKey, SealedCredentials]:
    """Credentials of the groups of these requests, by group."""
    found = await of_groups(tx, [each.key for each in requests])
    return {each.key: each for each in found}


async def of_provider(tx: Tx, provider_key: str) -> list[SealedCredentials]:
    """Credentials in the workspace of the transaction, except refused ones."""
    return [
        SealedCredentials(**row)
        for row in await fetch_named(tx, _SQL["credentials_of_provider"], (provider_key,))
    ]


async def next_version(tx: Tx, site_id: UUID, provider_key: str) -> int:
    """The next version for new credentials: higher than any that the site ever had, including deleted ones."""
    row = await fetch_one(tx, _SQL["next_version"], (site_id, provider_key))
    assert row is not None
    return int(row[0])


async def set_credentials(tx: Tx, site_id: UUID, provider_key: str, sealed: Sealed, actor: str) -> bool:
    """Store encrypted credentials. False: a later version is already stored."""
    params = (site_id, provider_key, sealed.version, sealed.key_id, sealed.nonce, sealed.ciphertext, actor)
    row = await fetch_one(tx, _SQL["set_credentials"], params)
    return bool(row and row[0])


async def remove(tx: Tx, workspace_id: UUID, site_id: UUID, provider_key: str, actor: str) -> bool:
    """Delete credentials. False: there were none."""
    params = {"workspace": workspace_id, "site": site_id, "provider": provider_key, "actor": actor}
    return await fetch_one(tx, _SQL["remove_credentials"], params) is not None


async def refuse(tx: Tx, refused: SealedCredentials, code: str | None) -> None:
    """Mark credentials as refused by the provider: they are no longer used."""
    await tx.execute(
        _SQL["refuse_credentials"], (refused.site_id, refused.provider_key, refused.version, code)
    )


async def sealed_with_other_keys(
    tx: Tx, key_id: str, after: SealedCredentials | None, limit: int
) -> list[SealedCredentials]:
    """A page of credentials encrypted with another key than this one, locked."""
    params = {
        "key": key_id,
        "site": after and after.site_id,
        "provider": after and after.provider_key,
        "limit": limit,
    }
    return [SealedCredentials(**row) for row in await fetch_named(tx, _SQL["sealed_with_other_keys"], params)]


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
