"""One call of a provider, and its consequence for each row, for the breaker and for the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import structlog

from weighbridge.delivery.context import Outbound
from weighbridge.delivery.in_flight import Key
from weighbridge.delivery.providers.base import Batch, Confirms
from weighbridge.delivery.queue import Call, Claimed
from weighbridge.model.delivery import (
    Category,
    Outcome,
    ProviderRateLimitError,
    ProviderTransientError,
    Verdict,
)

log = structlog.get_logger()

UNCLASSIFIED = ("UNKNOWN", "UNSPECIFIED")


async def of(outbound: Outbound, claimed: Claimed, batch: Batch, credentials: int, began: float) -> Call:
    """Call the provider, within the lease that was taken at `began`. Never raises what the provider did wrong."""
    provider = outbound.providers[claimed.provider_key]
    started = monotonic()
    left = began + outbound.lease.total_seconds() * 0.75 - started
    pause: timedelta | None = None
    broken = False  # the whole call
    try:
        if left <= 0:  # frozen on the way here: another may have these rows by the time this is sent
            late = Outcome.retry(None, "The worker was held up before it could send.", counts=False)
            return _told(claimed, _all(claimed, late), provider, started, broken=False)
        async with asyncio.timeout(left):
            outcomes = await provider.send(replace(batch, deadline=started + left), outbound.http)
        if len(outcomes) != len(batch.conversions):
            raise ValueError(f"{len(outcomes)} outcomes for {len(batch.conversions)} conversions")
    except ProviderRateLimitError as error:
        outcomes = _all(
            claimed, Outcome.retry(error.code, error.message, Category.RATE_LIMIT, error.retry_after)
        )
        pause = (error.pause or error.retry_after or timedelta(minutes=1)) if error.whole_provider else None
        broken = True
    except ProviderTransientError as error:
        outcomes = _all(claimed, Outcome.retry(error.code, error.message, after=error.retry_after))
        broken = True
    except TimeoutError:
        outcomes = _all(claimed, Outcome.retry(None, "The provider did not answer in time."))
        broken = True
    except Exception as error:  # S4: an adapter that throws is a passing trouble of all its rows
        log.exception("Provider failed", provider_key=claimed.provider_key, batch_id=str(claimed.id))
        outcomes = _all(
            claimed, Outcome.retry(None, f"The provider's adapter failed ({type(error).__name__}).")
        )
        broken = True
    call = _told(claimed, outcomes, provider, started, broken=broken)
    return replace(call, credentials=credentials, pause=pause)


def no_slot(claimed: Claimed, outbound: Outbound) -> Call:
    """PR11: every slot is taken, or nobody can say. No call; it does not use up a retry."""
    full = Outcome.retry(
        "CONCURRENCY_LIMIT", "CONCURRENCY_LIMIT: Semaphore full", after=timedelta(seconds=30)
    )
    return replace(_uncalled(claimed, full), transient=outbound.full_counts)


def closes(call: Call) -> Key | str | None:
    """The provider or the group that this call closes; None if it closes neither."""
    if call.pause:
        return call.claimed.provider_key
    return (call.claimed.site_id, call.claimed.provider_key) if call.refused else None


def held_back(claimed: Claimed) -> Call:
    """Claimed ahead of a call that met what would keep it from being claimed. It does not use up a retry."""
    return _uncalled(
        claimed, Outcome.retry("HELD_BACK", "HELD_BACK: A call before it met trouble; it was not sent.")
    )


def _uncalled(claimed: Claimed, why: Outcome) -> Call:
    return Call(
        claimed,
        _all(claimed, why),
        counts=False,
        error_code=why.code,
        error_category=Category.TRANSIENT.value,
    )


def _all(claimed: Claimed, outcome: Outcome) -> list[Outcome]:
    return [outcome] * len(claimed.conversions)


def _told(
    claimed: Claimed, outcomes: Sequence[Outcome], provider: object, started: float, *, broken: bool
) -> Call:
    """What a call's outcomes mean together."""
    success = any(said.verdict is Verdict.COMPLETED for said in outcomes)
    worst = next((said for said in outcomes if said.verdict is not Verdict.COMPLETED), None)
    return Call(
        claimed,
        outcomes,
        duration_ms=round((monotonic() - started) * 1000),
        request_id=next((said.request_id for said in outcomes if said.request_id), None),
        error_code=worst.code if worst else None,
        error_category=worst.category.value if worst and worst.category else None,
        success=success,
        transient=not success and (broken or any(map(_weather, outcomes))),
        refused=all(said.category is Category.AUTH for said in outcomes),
        unclassified=any(said.code in UNCLASSIFIED for said in outcomes),
        confirm_after=provider.confirm_after if isinstance(provider, Confirms) else None,
    )


def _weather(said: Outcome) -> bool:
    """Trouble of the provider, not of the row: a row that is to be sent again tomorrow says nothing of its health."""
    weather = said.category in (Category.TRANSIENT, Category.RATE_LIMIT)
    return said.verdict is Verdict.RETRY and said.counts and weather
