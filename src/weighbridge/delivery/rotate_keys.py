"""Re-encrypts credentials of older vault keys with the first key."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from weighbridge.delivery import credential_queries
from weighbridge.delivery.context import Context, outbound_of
from weighbridge.delivery.credential_queries import SealedCredentials
from weighbridge.delivery.vault import Sealed, Vault, VaultError

AT_ONCE = 100


@dataclass(frozen=True)
class Unreadable:
    """Credentials that no key can decrypt."""

    site_id: UUID
    provider_key: str
    key_id: str
    reason: str


@dataclass(frozen=True)
class Rotated:
    key_id: str  # of the first key
    resealed: int
    unreadable: list[Unreadable]


async def rotate(ctx: Context) -> Rotated:
    """Re-encrypt all readable credentials, a few per transaction, so that other readers and writers hardly wait."""
    vault = outbound_of(ctx).vault
    unreadable: list[Unreadable] = []
    resealed = 0
    after: SealedCredentials | None = None
    while True:
        done = 0
        async with ctx.db.tx() as tx:
            page = await credential_queries.sealed_with_other_keys(tx, vault.key_ids[0], after, AT_ONCE)
            for each in page:
                anew = _resealed(vault, each)
                if isinstance(anew, Unreadable):
                    unreadable.append(anew)
                else:
                    done += await credential_queries.reseal(tx, anew)
        resealed += done  # counted after the commit
        if len(page) < AT_ONCE:
            return Rotated(vault.key_ids[0], resealed, unreadable)
        after = page[-1]


def _resealed(vault: Vault, found: SealedCredentials) -> SealedCredentials | Unreadable:
    sealed = Sealed(found.key_id, found.nonce, found.ciphertext, found.version)
    try:
        anew = vault.reseal(found.site_id, found.provider_key, sealed)
    except VaultError as error:
        return Unreadable(found.site_id, found.provider_key, found.key_id, str(error))
    return SealedCredentials(
        found.site_id, found.provider_key, anew.version, anew.key_id, anew.nonce, anew.ciphertext
    )
