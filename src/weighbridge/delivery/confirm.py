"""Conversions that a provider accepted and checks later → confirmed, or refused."""

from __future__ import annotations

import asyncio

import structlog

from weighbridge.delivery import credential_queries, queue
from weighbridge.delivery.context import Context, Outbound, outbound_of, unsealed
from weighbridge.delivery.providers.base import Confirmation, Confirms
from weighbridge.delivery.queue import PendingConfirmation
from weighbridge.delivery.vault import VaultError
from weighbridge.model.delivery import ProviderTransientError
from weighbridge.model.retry import CONFIRMATION_TRIES
from weighbridge.postgres import roles

log = structlog.get_logger()

AT_ONCE = 20


async def confirm(ctx: Context) -> int:
    """Query the status of requests that are due; returns how many were queried."""
    outbound = outbound_of(ctx)
    async with ctx.db.tx(roles.DELIVER) as tx:
        pending = await queue.claim_confirmations(tx, AT_ONCE)
    await asyncio.gather(*(_ask(ctx, outbound, each) for each in pending))
    return len(pending)


async def _ask(ctx: Context, outbound: Outbound, pending: PendingConfirmation) -> None:
    provider: object = outbound.providers.get(pending.provider_key)
    if not isinstance(provider, Confirms):
        return  # this process does not have the provider: another one asks
    async with ctx.db.tx(roles.DELIVER) as tx:
        sealed = await credential_queries.of_groups(tx, [pending.key])
    confirmation = Confirmation("PROCESSING")
    if sealed:
        try:
            confirmation = await provider.confirm(
                pending.request_id, unsealed(outbound, sealed[0]), outbound.http
            )
        except (ProviderTransientError, VaultError) as error:
            log.warning("Confirmation postponed", provider_key=pending.provider_key, reason=str(error))
        except Exception:
            log.exception("Confirmation failed", provider_key=pending.provider_key)
    state = confirmation.state
    if state == "PROCESSING":
        if pending.tries < CONFIRMATION_TRIES:
            return
        state = "UNKNOWN"
    async with ctx.db.tx(roles.DELIVER) as tx:
        rows = await queue.settle_confirmation(tx, pending, state, confirmation.reasons)
    log.info("Confirmation", provider_key=pending.provider_key, state=state, rows=rows)
