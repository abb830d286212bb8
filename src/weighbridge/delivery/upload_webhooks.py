"""Announces finished uploads to the webhooks of sites (Standard Webhooks)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from weighbridge.delivery import credential_queries
from weighbridge.delivery.context import Outbound, unsealed
from weighbridge.delivery.providers.base import Credentials
from weighbridge.delivery.providers.webhook import Webhook
from weighbridge.delivery.vault import VaultError
from weighbridge.engine import outbox
from weighbridge.engine.context import Consumer
from weighbridge.engine.outbox import EventDelivery
from weighbridge.model.delivery import Category, ProviderTransientError, Verdict
from weighbridge.postgres import clock, roles
from weighbridge.postgres.transactions import Database

WEBHOOKS = "webhooks"  # the consumer's name


def announcing(outbound: Outbound, db: Database) -> dict[str, Consumer]:
    """The consumer that posts finished uploads. The credentials of a site's webhook select its events."""
    provider = outbound.providers.get("webhook")
    if not isinstance(provider, Webhook):
        return {}
    return {WEBHOOKS: Consumer(outside=_announce(outbound, db, provider))}


def _announce(
    outbound: Outbound, db: Database, provider: Webhook
) -> Callable[[EventDelivery], Awaitable[None]]:
    async def announce(delivery: EventDelivery) -> None:
        async with db.tx(roles.DELIVER, delivery.lease.workspace_id) as tx:
            found = await credential_queries.of_provider(tx, "webhook")
            now = await clock.now(tx)
        failed = []
        for sealed in found:
            site = str(sealed.site_id)
            if site in delivery.accepted_by:
                continue
            try:
                credentials = unsealed(outbound, sealed)
                if delivery.type not in _wanted(credentials):
                    continue
                outcome = await provider.announce(
                    outbound.http, credentials, str(delivery.event_id), delivery.type, delivery.payload, now
                )
            except (ProviderTransientError, VaultError) as error:
                failed.append(f"site {site}: {error}")
                continue
            if outcome.verdict is Verdict.RETRY:
                failed.append(f"site {site}: {outcome.message}")
                continue
            # Refused permanently: this event is not sent again, and refused credentials stop further events.
            async with db.tx() as tx:
                if outcome.category is Category.AUTH:
                    await credential_queries.refuse(tx, sealed, outcome.code)
                await outbox.note_accepted(tx, delivery, site)
        if failed:
            raise ProviderTransientError("; ".join(failed))

    return announce


def _wanted(credentials: Credentials) -> set[str]:
    return set(credentials.get("events", "").replace(",", " ").split())
