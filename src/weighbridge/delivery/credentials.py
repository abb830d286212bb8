"""Stores the credentials of a site for a provider: checked, sealed, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from weighbridge.delivery import sites
from weighbridge.delivery.context import Context
from weighbridge.delivery.outbound import ROLE, outbound_of
from weighbridge.delivery.providers.base import Credentials, Provider
from weighbridge.delivery.sites import CredentialsStanding
from weighbridge.model.errors import RequestRefused, RetryLater, did_you_mean


async def put(
    ctx: Context, workspace_id: UUID, site_id: UUID, provider_key: str, said: Any, actor: str
) -> CredentialsStanding:
    """RequestRefused where a name is missing or unknown; ConfigError without the vault's key. It is audited."""
    outbound = outbound_of(ctx)
    values = named(find(outbound.providers, provider_key), said)
    async with ctx.db.tx(ROLE, workspace_id) as tx:
        version = await sites.next_version(tx, site_id, provider_key)
        sealed = outbound.vault.seal(site_id, provider_key, values, version)
        if not await sites.set_credentials(tx, site_id, provider_key, sealed, actor):
            raise RetryLater("connection", "Others set the same credentials at the same time. Try again.")
        standing = await sites.credentials(tx, site_id)
        return next(each for each in standing if each.provider_key == provider_key)


def find(providers: Mapping[str, Provider], provider_key: str) -> Provider:
    """RequestRefused(404) where there is no such provider."""
    if provider_key not in providers:
        raise unknown_provider(provider_key, list(providers))
    return providers[provider_key]


def unknown_provider(provider_key: str, known: list[str], status: int = 404) -> RequestRefused:
    hint = did_you_mean(provider_key, known) or "."
    return RequestRefused(
        status, "unknown_provider", f"provider: expected one of {', '.join(sorted(known))}{hint}"
    )


def named(provider: Provider, said: Any) -> Credentials:
    """The values by name, or RequestRefused(422). Values are never repeated, nor names that are like none of ours."""
    if not isinstance(said, dict):
        raise _invalid("expected a JSON object of names and values, got something else.")
    known = {need.name: need for need in provider.needs}
    for name in said:
        if name not in known:
            hint = did_you_mean(name, known) or "."
            expected = f"{provider.name} has {', '.join(known)}"
            raise _invalid(f"a name among them is not known; {expected}{hint}")
    for name, value in said.items():
        if value is not None and (not isinstance(value, str) or not value.isprintable()):
            raise _invalid(f"{name}: expected text ({known[name].help}), got something else.")
    values = {name: value.strip() for name, value in said.items() if value and value.strip()}
    missing = [need for need in known.values() if need.required and need.name not in values]
    if missing:
        told = "; ".join(f"{need.name} ({need.help})" for need in missing)
        raise _invalid(f"{provider.name} needs {told}.")
    return Credentials(values)


def _invalid(sentence: str) -> RequestRefused:
    return RequestRefused(422, "invalid_credentials", f"credentials: {sentence}")
