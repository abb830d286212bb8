"""One call to a provider, and its consequence for each row, for the breaker and for the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import structlog

from weighbridge.delivery.context import Outbound
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.providers.base import Batch, Confirms, Credentials
from weighbridge.delivery.queue import CallBatch, CallResult
from weighbridge.model.delivery import (
    Category,
    Outcome,
    ProviderRateLimitError,
    ProviderTransientError,
    Verdict,
)
from weighbridge.model.retry import NO_SLOT_PAUSE, PROVIDER_PAUSE

log = structlog.get_logger()

UNCLASSIFIED = ("UNKNOWN", "UNSPECIFIED")


async def call_provider(
    outbound: Outbound, batch: CallBatch, credentials: Credentials, deadline: float, *, dry_run: bool = False
) -> CallResult:
    """Call the provider until `deadline`, by `monotonic`. Never raises for an error of the provider."""
    provider = outbound.providers[batch.key.provider_key]
    sent = Batch(
        batch.key.site_id,
        batch.conversions,
        credentials,
        batch.now,
        batch.id,
        dry_run=dry_run,
        deadline=deadline,
    )
    started = monotonic()
    left = deadline - started
    pause: timedelta | None = None
    failed = False  # the whole call
    try:
        if left <= 0:  # the process was suspended: another worker may hold these rows when this is sent
            late = Outcome.retry(None, "The worker was delayed and could not send in time.", counts=False)
            return _result(batch, _all(batch, late), provider, started, failed=False)
        async with asyncio.timeout(left):
            outcomes = await provider.send(sent, outbound.http)
        if len(outcomes) != len(batch.conversions):
            raise ValueError(f"{len(outcomes)} outcomes for {len(batch.conversions)} conversions")
    except ProviderRateLimitError as error:
        outcomes = _all(
            batch, Outcome.retry(error.code, error.message, Category.RATE_LIMIT, error.retry_after)
        )
        pause = (error.pause or error.retry_after or PROVIDER_PAUSE) if error.whole_provider else None
        failed = True
    except ProviderTransientError as error:
        outcomes = _all(batch, Outcome.retry(error.code, error.message, after=error.retry_after))
        failed = True
    except TimeoutError:
        outcomes = _all(batch, Outcome.retry(None, "The provider did not respond in time."))
        failed = True
    except Exception as error:  # an adapter that raises is a transient failure of all its rows
        log.exception("Provider failed", provider_key=batch.key.provider_key, batch_id=str(batch.id))
        outcomes = _all(
            batch, Outcome.retry(None, f"The provider's adapter failed ({type(error).__name__}).")
        )
        failed = True
    result = _result(batch, outcomes, provider, started, failed=failed)
    return replace(result, pause=pause)


def no_slot(batch: CallBatch, outbound: Outbound) -> CallResult:
    """Every slot is taken, or the slots cannot be reached. There is no call, and no retry is used up."""
    full = Outcome.retry("CONCURRENCY_LIMIT", "CONCURRENCY_LIMIT: Semaphore full", after=NO_SLOT_PAUSE)
    return replace(_uncalled(batch, full), breaker_failure=outbound.full_counts)


def target_to_block(result: CallResult) -> GroupKey | str | None:
    """The provider (it asks for a pause) or the group (its credentials are refused) of which nothing may be claimed."""
    if result.pause:
        return result.batch.key.provider_key
    return result.batch.key if result.credentials_refused else None


def not_sent(batch: CallBatch) -> CallResult:
    """Prefetched, and released because an earlier call of its group or provider failed. No retry is used up."""
    return _uncalled(
        batch, Outcome.retry("HELD_BACK", "HELD_BACK: Not sent, because an earlier call failed.")
    )


def _uncalled(batch: CallBatch, why: Outcome) -> CallResult:
    return CallResult(
        batch,
        _all(batch, why),
        uses_retry=False,
        error_code=why.code,
        error_category=Category.TRANSIENT.value,
    )


def _all(batch: CallBatch, outcome: Outcome) -> list[Outcome]:
    return [outcome] * len(batch.conversions)


def _result(
    batch: CallBatch, outcomes: Sequence[Outcome], provider: object, started: float, *, failed: bool
) -> CallResult:
    """The outcomes of a call, and their meaning for the breaker, the credentials and the ledger."""
    success = any(outcome.verdict is Verdict.COMPLETED for outcome in outcomes)
    worst = next((outcome for outcome in outcomes if outcome.verdict is not Verdict.COMPLETED), None)
    return CallResult(
        batch,
        outcomes,
        duration_ms=round((monotonic() - started) * 1000),
        request_id=next((outcome.request_id for outcome in outcomes if outcome.request_id), None),
        error_code=worst.code if worst else None,
        error_category=worst.category.value if worst and worst.category else None,
        success=success,
        breaker_failure=not success and (failed or any(map(_provider_failed, outcomes))),
        credentials_refused=all(outcome.category is Category.AUTH for outcome in outcomes),
        unclassified=any(outcome.code in UNCLASSIFIED for outcome in outcomes),
        confirm_after=provider.confirm_after if isinstance(provider, Confirms) else None,
    )


def _provider_failed(outcome: Outcome) -> bool:
    """A failure of the provider, not of the row."""
    transient = outcome.category in (Category.TRANSIENT, Category.RATE_LIMIT)
    return outcome.verdict is Verdict.RETRY and outcome.counts and transient
