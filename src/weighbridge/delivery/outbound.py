"""Delivery needs the key of the vault, and a role that may read credentials."""

from __future__ import annotations

from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.providers.base import Credentials
from weighbridge.delivery.queue import SealedCredentials
from weighbridge.delivery.vault import Sealed
from weighbridge.model.errors import ConfigError

ROLE = "weighbridge_deliver"


def outbound_of(ctx: Context) -> Outbound:
    if ctx.outbound is None:
        raise ConfigError(
            "Nothing can be delivered without the key to the credentials. Set WEIGHBRIDGE_VAULT_KEY; "
            "`weighbridge vault key` makes one."
        )
    return ctx.outbound


def unsealed(outbound: Outbound, found: SealedCredentials) -> Credentials:
    """Raises VaultError."""
    sealed = Sealed(found.key_id, found.nonce, found.ciphertext, found.version)
    return outbound.vault.unseal(found.site_id, found.provider_key, sealed)
