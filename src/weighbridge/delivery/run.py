"""One delivery run: groups → shares → calls.

One run lists the groups that wait, gives each its share, and sends the shares side by side. Nothing of one group waits
for another, and no transaction is open while a provider is called.
"""

from __future__ import annotations

from collections.abc import Sequence

from weighbridge.delivery import queue
from weighbridge.delivery.context import Context, Outbound
from weighbridge.delivery.dispatch import Run
from weighbridge.delivery.in_flight import Room
from weighbridge.delivery.outbound import ROLE, outbound_of
from weighbridge.delivery.queue import Group
from weighbridge.delivery.settle import Tally
from weighbridge.model.shares import in_turn, shares

COUNTED = 10_000  # rows of a group that its share is weighed by; groups that are longer weigh the same


async def deliver(ctx: Context, worker: str, limit: int, room: Room | None = None) -> Tally:
    """Send at most `limit` conversions, and see every call through. Any number may do this at once.

    Runs that share their `room` leave to each other what the other is at.
    """
    outbound = outbound_of(ctx)
    tally = Tally()
    async with ctx.db.tx(ROLE) as tx:
        waiting = await queue.groups(tx, COUNTED)
    closed, probed = await _sort_out(ctx, outbound, waiting, limit, tally)
    plan = [*probed, *shares(closed, limit - sum(share for _, share in probed))]
    await Run(ctx, outbound, worker, tally, room or Room()).through(plan)
    return tally


async def _sort_out(
    ctx: Context, outbound: Outbound, waiting: Sequence[Group], limit: int, tally: Tally
) -> tuple[list[Group], list[tuple[Group, int]]]:
    """Groups that may be sent to, and those that are probed, with how many rows. Open ones are parked."""
    closed: list[Group] = []
    due: list[Group] = []
    open_groups: list[Group] = []
    for group in waiting:
        reason = in_the_way(group, outbound)
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
    # However many are broken, those that are well have their share.
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


def in_the_way(group: Group, outbound: Outbound) -> str | None:
    if group.provider_key not in outbound.providers:
        return "unknown_provider"  # another version's, or another machine's: rows wait for one that knows it
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
