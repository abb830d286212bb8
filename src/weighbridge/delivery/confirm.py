"""Conversions that a provider accepted and checks later → confirmed, or refused."""

from __future__ import annotations

import asyncio

import structlog

from weighbridge.delivery import queue
from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.outbound import ROLE, outbound_of, unsealed
from weighbridge.delivery.providers.base import Confirmation, Confirms
from weighbridge.delivery.queue import Awaited, BatchRequest
from weighbridge.delivery.vault import VaultError
from weighbridge.model.delivery import ProviderTransientError

log = structlog.get_logger()

AT_ONCE = 20
MOST_TRIES = 150  # every ten minutes for about a day; then the result is unknown


async def confirm(ctx: Context) -> int:
    """Query the status of requests that are due; returns how many were queried."""
    outbound = outbound_of(ctx)
    async with ctx.db.tx(ROLE) as tx:
        awaited = await queue.claim_confirmations(tx, AT_ONCE)
    await asyncio.gather(*(_ask(ctx, outbound, each) for each in awaited))
    return len(awaited)


async def _ask(ctx: Context, outbound: Outbound, awaited: Awaited) -> None:
    provider: object = outbound.providers.get(awaited.provider_key)
    if not isinstance(provider, Confirms):
        return  # this process does not know the provider: another one asks
    request = BatchRequest(awaited.site_id, awaited.provider_key, 0)
    async with ctx.db.tx(ROLE) as tx:
        sealed = await queue.credentials(tx, [request])
    confirmation = Confirmation("PROCESSING")
    if sealed:
        try:
            confirmation = await provider.confirm(
                awaited.request_id, unsealed(outbound, sealed[0]), outbound.http
            )
        except (ProviderTransientError, VaultError) as error:
            log.warning("Confirmation put off", provider_key=awaited.provider_key, reason=str(error))
        except Exception:
            log.exception("Confirmation failed", provider_key=awaited.provider_key)
    state = confirmation.state
    if state == "PROCESSING":
        if awaited.tries < MOST_TRIES:
            return
        state = "UNKNOWN"
    async with ctx.db.tx(ROLE) as tx:
        rows = await queue.settle_confirmation(tx, awaited, state, confirmation.reasons)
    log.info("Confirmation", provider_key=awaited.provider_key, state=state, rows=rows)
