"""The conversions that a run would send now, checked by the providers. Nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from uuid import uuid4

from weighbridge.delivery import credential_queries, queue
from weighbridge.delivery.context import Context, Outbound, outbound_of, unsealed
from weighbridge.delivery.credential_queries import SealedCredentials
from weighbridge.delivery.forecast import expected_plan
from weighbridge.delivery.provider_call import call_provider
from weighbridge.delivery.queue import BatchRequest, CallBatch, DueGroup
from weighbridge.delivery.vault import VaultError
from weighbridge.model.delivery import Conversion, Outcome
from weighbridge.postgres import roles


@dataclass(frozen=True)
class DryRunResult:
    """A group: the provider's outcome for each row, or why it was skipped."""

    group: DueGroup
    outcomes: Sequence[tuple[Conversion, Outcome]] = ()
    calls: int = 0
    expired: int = 0  # a run would refuse them when it claims them
    skipped: str | None = None


async def dry_run(ctx: Context, limit: int) -> list[DryRunResult]:
    """Let the providers validate at most `limit` conversions, with the groups and shares of a run."""
    outbound = outbound_of(ctx)
    async with ctx.db.tx(roles.DELIVER) as tx:
        plan, _ = await expected_plan(tx, outbound, limit)
        sending = [*plan.probes, *plan.shares]
        requests = [BatchRequest(group.key, share) for group, share in sending]
        sealed = await credential_queries.by_group(tx, requests)
        found = {each.key: each for each in await queue.peek(tx, requests)}
    planned: dict[str, list[_GroupPlan]] = {}
    for group, _ in sending:
        if group.key in sealed and group.key in found:
            each = _GroupPlan(group, sealed[group.key], found[group.key])
            planned.setdefault(group.provider_key, []).append(each)
    checked = await asyncio.gather(*(_check_groups(outbound, each) for each in planned.values()))
    return [each for some in checked for each in some] + [
        DryRunResult(group, skipped=reason) for group, reason in plan.skipped.items()
    ]


@dataclass(frozen=True)
class _GroupPlan:
    group: DueGroup
    sealed: SealedCredentials
    found: CallBatch


async def _check_groups(outbound: Outbound, planned: Sequence[_GroupPlan]) -> list[DryRunResult]:
    """The groups of a provider, one call at a time: a dry run must not write slots."""
    return [await _check_group(outbound, group_plan) for group_plan in planned]


async def _check_group(outbound: Outbound, group_plan: _GroupPlan) -> DryRunResult:
    try:
        credentials = unsealed(outbound, group_plan.sealed)
    except VaultError:
        return DryRunResult(group_plan.group, skipped="credentials_unreadable")
    outcomes: list[tuple[Conversion, Outcome]] = []
    calls = 0
    for part in _split(group_plan.found, outbound.providers[group_plan.group.provider_key].max_batch):
        deadline = outbound.deadline(monotonic())
        result = await call_provider(outbound, part, credentials, deadline, dry_run=True)
        outcomes += zip(part.conversions, result.outcomes, strict=True)
        calls += 1
    return DryRunResult(group_plan.group, outcomes, calls, group_plan.found.expired)


def _split(found: CallBatch, size: int) -> Iterator[CallBatch]:
    """In batches, as a run would claim them."""
    for start in range(0, len(found.conversions), size):
        rows = found.conversions[start : start + size]
        yield CallBatch(uuid4(), found.key, found.now, rows, 0)
