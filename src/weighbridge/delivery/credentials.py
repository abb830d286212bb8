"""Stores the credentials of a site for a provider: validates, encrypts and replaces them as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from weighbridge.delivery import credential_queries
from weighbridge.delivery.context import Context, outbound_of
from weighbridge.delivery.credential_queries import CredentialsStatus
from weighbridge.delivery.providers.base import Credentials, Provider
from weighbridge.model.errors import RequestRefused, RetryLater, did_you_mean
from weighbridge.postgres import roles


async def put(
    ctx: Context, workspace_id: UUID, site_id: UUID, provider_key: str, given: Any, actor: str
) -> CredentialsStatus:
    """RequestRefused if a name is missing or unknown; ConfigError without a vault key. The action is audited."""
    outbound = outbound_of(ctx)
    values = validated(known_provider(outbound.providers, provider_key), given)
    async with ctx.db.tx(roles.DELIVER, workspace_id) as tx:
        version = await credential_queries.next_version(tx, site_id, provider_key)
        sealed = outbound.vault.seal(site_id, provider_key, values, version)
        if not await credential_queries.set_credentials(tx, site_id, provider_key, sealed, actor):
            raise RetryLater("connection", "The same credentials were changed at the same time. Try again.")
        found = await credential_queries.of_site(tx, site_id)
        return next(each for each in found if each.provider_key == provider_key)


def known_provider(providers: Mapping[str, Provider], provider_key: str) -> Provider:
    """RequestRefused(404) if the provider is unknown."""
    if provider_key not in providers:
        raise unknown_provider(provider_key, list(providers))
    return providers[provider_key]


def unknown_provider(provider_key: str, known: list[str], status: int = 404) -> RequestRefused:
    hint = did_you_mean(provider_key, known) or "."
    return RequestRefused(
        status, "unknown_provider", f"provider: expected one of {', '.join(sorted(known))}{hint}"
    )


def validated(provider: Provider, given: Any) -> Credentials:
    """The values by name, or RequestRefused(422). Messages contain no values and no unknown names."""
    if not isinstance(given, dict):
        raise _invalid("expected a JSON object of names and values, got something else.")
    known = {need.name: need for need in provider.needs}
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known) or "."
            expected = f"{provider.name} has {', '.join(known)}"
            raise _invalid(f"it contains an unknown name; {expected}{hint}")
    for name, value in given.items():
        if value is not None and (not isinstance(value, str) or not value.isprintable()):
            raise _invalid(f"{name}: expected text ({known[name].help}), got something else.")
    values = {name: value.strip() for name, value in given.items() if value and value.strip()}
    missing = [need for need in known.values() if need.required and need.name not in values]
    if missing:
        names = "; ".join(f"{need.name} ({need.help})" for need in missing)
        raise _invalid(f"{provider.name} requires {names}.")
    return Credentials(values)


def _invalid(sentence: str) -> RequestRefused:
    return RequestRefused(422, "invalid_credentials", f"credentials: {sentence}")
