"""Access to the vault and the database role for deliveries."""

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
            "Deliveries need the vault key, which decrypts the credentials. Set WEIGHBRIDGE_VAULT_KEY; "
            "`weighbridge vault key` creates one."
        )
    return ctx.outbound


def unsealed(outbound: Outbound, found: SealedCredentials) -> Credentials:
    """Raises VaultError."""
    sealed = Sealed(found.key_id, found.nonce, found.ciphertext, found.version)
    return outbound.vault.unseal(found.site_id, found.provider_key, sealed)
