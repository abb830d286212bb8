"""One delivery run: groups → plan → calls.

One run lists the groups with due rows, plans how many rows each sends, and sends them concurrently. No group waits for
another, and no transaction is open while a provider is called.
"""

from __future__ import annotations

from weighbridge.delivery import breaker, queue
from weighbridge.delivery.context import Context, outbound_of
from weighbridge.delivery.dispatch_loop import Dispatcher
from weighbridge.delivery.in_flight import InFlight
from weighbridge.delivery.plan import COUNTED, Plan
from weighbridge.delivery.run_counts import RunCounts
from weighbridge.postgres import roles


async def deliver(ctx: Context, worker: str, limit: int, in_flight: InFlight | None = None) -> RunCounts:
    """Send at most `limit` conversions, and finish every call. Any number of runs may do this at once.

    Concurrent runs of a process share `in_flight`, and keep its limits together. They do not wait for calls that
    cannot be settled because of another transaction: their caller does, with `settle_held`.
    """
    outbound = outbound_of(ctx)
    async with ctx.db.tx(roles.DELIVER) as tx:
        waiting = await queue.groups(tx, COUNTED)
    plan = Plan.of(waiting, outbound, limit)
    while group := plan.next_probe():
        async with ctx.db.tx(roles.DELIVER) as tx:
            plan.add_probe(group, await breaker.begin_probe(tx, group, outbound.lease))
    counts = RunCounts()
    counts.skipped.update(plan.skipped.values())
    if plan.open_groups:
        async with ctx.db.tx(roles.DELIVER) as tx:
            counts.parked = await breaker.park(tx, plan.open_groups, limit)
    limits = in_flight or InFlight()
    await Dispatcher(ctx, outbound, worker, counts, limits).run([*plan.probes, *plan.shares])
    if in_flight is None:
        await limits.settle_held()
    return counts
