"""The conversions that a run would send now, checked by the providers. Nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from uuid import uuid4

from weighbridge.delivery import overview, queue
from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.outbound import ROLE, outbound_of, unsealed
from weighbridge.delivery.prefetch import Prefetched
from weighbridge.delivery.provider_call import call_provider
from weighbridge.delivery.providers.base import Credentials
from weighbridge.delivery.queue import BatchRequest, Claimed, Group, SealedCredentials
from weighbridge.delivery.run import COUNTED, blocked_by
from weighbridge.delivery.vault import VaultError
from weighbridge.model.delivery import Conversion, Outcome
from weighbridge.model.shares import shares
from weighbridge.postgres.pool import Tx


@dataclass(frozen=True)
class Rehearsed:
    """A group: the provider's outcome for each row, or why it was skipped."""

    group: Group
    said: Sequence[tuple[Conversion, Outcome]] = ()
    calls: int = 0
    expired: int = 0  # a run would refuse them when it claims them
    skipped: str | None = None


async def rehearse(ctx: Context, limit: int) -> list[Rehearsed]:
    """Let the providers validate at most `limit` conversions, with the groups and shares of a run."""
    parts = outbound_of(ctx)
    async with ctx.db.tx(ROLE) as tx:
        plan, skipped = await _planned(tx, parts, limit)
        requests = [BatchRequest(group.site_id, group.provider_key, share) for group, share in plan]
        sealed = {(each.site_id, each.provider_key): each for each in await queue.credentials(tx, requests)}
        found = {(each.site_id, each.provider_key): each for each in await queue.peek(tx, requests)}
    acts: dict[str, list[_Act]] = {}
    for group, _ in plan:
        key = (group.site_id, group.provider_key)
        if key in sealed and key in found:
            acts.setdefault(group.provider_key, []).append(_Act(group, sealed[key], found[key]))
    told = await asyncio.gather(*(_one_by_one(parts, each) for each in acts.values()))
    return [each for some in told for each in some] + [
        Rehearsed(group, skipped=reason) for group, reason in skipped.items()
    ]


async def _planned(tx: Tx, parts: Outbound, limit: int) -> tuple[list[tuple[Group, int]], dict[Group, str]]:
    """The groups of a run with their shares, and the groups that it would skip, with the reason."""
    waiting = await queue.groups(tx, COUNTED)
    skipped = {group: reason for group in waiting if (reason := blocked_by(group, parts))}
    probed: list[tuple[Group, int]] = []
    left = limit
    for group in waiting:
        if group in skipped or group.state == "CLOSED":
            continue
        rows = await overview.probe_rows(tx, group) if group.probe_due else None
        if rows is None:
            skipped[group] = "being_probed" if group.probe_due else "circuit_open"
        elif left:
            probed.append((group, min(rows, group.queued_count, left)))
            left -= probed[-1][1]
    closed = [group for group in waiting if group.state == "CLOSED" and group not in skipped]
    return [*probed, *shares(closed, left)], skipped


@dataclass(frozen=True)
class _Act:
    group: Group
    sealed: SealedCredentials
    found: Claimed


async def _one_by_one(parts: Outbound, acts: Sequence[_Act]) -> list[Rehearsed]:
    """The groups of a provider, one call at a time: a dry run must not write slots."""
    return [await _checked(parts, act) for act in acts]


async def _checked(parts: Outbound, act: _Act) -> Rehearsed:
    try:
        credentials = unsealed(parts, act.sealed)
    except VaultError:
        return Rehearsed(act.group, skipped="credentials_unreadable")
    said: list[tuple[Conversion, Outcome]] = []
    calls = 0
    for part in _split(act.found, parts.providers[act.group.provider_key].max_batch):
        said += zip(part.conversions, await _asked(parts, part, act, credentials), strict=True)
        calls += 1
    return Rehearsed(act.group, said, calls, act.found.expired)


def _split(found: Claimed, size: int) -> Iterator[Claimed]:
    """In batches, as a run would claim them."""
    for start in range(0, len(found.conversions), size):
        rows = found.conversions[start : start + size]
        yield Claimed(uuid4(), found.site_id, found.provider_key, found.now, rows, 0)


async def _asked(parts: Outbound, part: Claimed, act: _Act, credentials: Credentials) -> Sequence[Outcome]:
    batch = Prefetched(part, credentials, act.sealed.version, monotonic(), dry_run=True)
    return (await call_provider(parts, batch)).outcomes
