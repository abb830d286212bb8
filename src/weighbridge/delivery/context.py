"""Parts that delivering conversions needs: providers, vault, slots and connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import httpx

from weighbridge.delivery.credential_queries import SealedCredentials
from weighbridge.delivery.providers.base import Credentials, Provider
from weighbridge.delivery.slots.base import SlotLimits, Slots
from weighbridge.delivery.vault import Sealed, Vault
from weighbridge.model.errors import ConfigError
from weighbridge.model.retry import CONVERSION, Backoff
from weighbridge.uploads import context


@dataclass(frozen=True)
class Outbound:
    providers: Mapping[str, Provider]
    vault: Vault
    slots: Slots
    http: httpx.AsyncClient
    limits: SlotLimits = field(default_factory=SlotLimits)
    retries: Backoff = CONVERSION
    full_counts: bool = True  # the breaker counts "no free slot" as a failure

    @property
    def lease(self) -> timedelta:
        """The lease of a call. It is not renewed: a call ends or times out well before."""
        return self.limits.ttl

    def deadline(self, leased_at: float) -> float:
        """By when a call of a batch ends, by `monotonic`. The rest of the lease is left to settle it."""
        return leased_at + 0.75 * self.lease.total_seconds()


@dataclass(frozen=True, kw_only=True)
class Context(context.Context):
    outbound: Outbound | None = None  # None: the vault key is not set, and nothing is delivered


def outbound_of(ctx: Context) -> Outbound:
    if ctx.outbound is None:
        raise ConfigError(
            "Deliveries need the vault key, which decrypts the credentials. Set WEIGHBRIDGE_VAULT_KEY; "
            "`weighbridge vault key` creates one."
        )
    return ctx.outbound


def unsealed(outbound: Outbound, found: SealedCredentials) -> Credentials:
    """Raises VaultError."""
    sealed = Sealed(found.key_id, found.nonce, found.ciphertext, found.version)
    return outbound.vault.unseal(found.site_id, found.provider_key, sealed)
