"""One delivery run: groups → shares → calls.

One run lists the groups with due rows, gives each its share, and sends the shares concurrently. No group waits for
another, and no transaction is open while a provider is called.
"""

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.delivery import queue
from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.dispatch import Dispatcher
from weighbridge.delivery.in_flight import InFlight
from weighbridge.delivery.outbound import ROLE, outbound_of
from weighbridge.delivery.queue import Group
from weighbridge.delivery.settle import Tally
from weighbridge.model.shares import in_turn, shares

COUNTED = 10_000  # rows of a group that count for its share; longer groups have the same weight


async def deliver(ctx: Context, worker: str, limit: int, in_flight: InFlight | None = None) -> Tally:
    """Send at most `limit` conversions, and finish every call. Any number of runs may do this at once.

    Concurrent runs of a process share `in_flight`, and keep its limits together.
    """
    outbound = outbound_of(ctx)
    tally = Tally()
    async with ctx.db.tx(ROLE) as tx:
        waiting = await queue.groups(tx, COUNTED)
    closed, probed = await _divide(ctx, outbound, waiting, limit, tally)
    plan = [*probed, *shares(closed, limit - sum(share for _, share in probed))]
    await Dispatcher(ctx, outbound, worker, tally, in_flight or InFlight()).run(plan)
    return tally


async def _divide(
    ctx: Context, outbound: Outbound, waiting: Sequence[Group], limit: int, tally: Tally
) -> tuple[list[Group], list[tuple[Group, int]]]:
    """Groups whose breaker is closed, and those to probe, with how many rows. Rows of open groups are postponed."""
    closed: list[Group] = []
    due: list[Group] = []
    open_groups: list[Group] = []
    for group in waiting:
        reason = blocked_by(group, outbound)
        if reason:
            tally.skipped[reason] += 1
        elif group.state == "CLOSED":
            closed.append(group)
        elif group.probe_due:
            due.append(group)
        else:
            tally.skipped["circuit_open"] += 1
            open_groups.append(group)
    probed: list[tuple[Group, int]] = []
    # Half of the limit is kept for closed groups, however many are to be probed.
    left = (limit + 1) // 2 if closed else limit
    for group in in_turn(due):
        if left <= 0:
            break
        async with ctx.db.tx(ROLE) as tx:
            rows = await queue.begin_probe(tx, group, outbound.lease)
        if rows is None:
            tally.skipped["being_probed"] += 1
        else:
            probed.append((group, min(rows, group.queued_count, left)))
            left -= probed[-1][1]
    if open_groups:
        async with ctx.db.tx(ROLE) as tx:
            tally.parked = await queue.park(tx, open_groups, limit)
    return closed, probed


def blocked_by(group: Group, outbound: Outbound) -> str | None:
    if group.provider_key not in outbound.providers:
        return "unknown_provider"  # the rows wait for a process that knows it
    if group.unused:
        return "not_in_use"
    if group.key_id is None:
        return "no_credentials"
    if group.key_id not in outbound.vault.key_ids:
        return "credentials_unreadable"
    if group.refused:
        return "credentials_refused"
    if group.paused:
        return "provider_paused"
    return None
