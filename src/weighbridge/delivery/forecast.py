"""The shares of the next run, by group. Nothing is claimed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weighbridge.delivery import breaker, queue
from weighbridge.delivery.context import Outbound
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.plan import COUNTED, Plan
from weighbridge.delivery.queue import DueGroup
from weighbridge.postgres.transactions import Tx


@dataclass(frozen=True)
class Forecast:
    """For a group with due rows: how many the next run would send, or why none."""

    due: int  # at most COUNTED
    share: int = 0
    reason: str | None = None
    probe: bool = False  # a few rows, to test whether the provider works again


async def forecast(tx: Tx, outbound: Outbound, limit: int) -> dict[GroupKey, Forecast]:
    """Forecast for all groups of all workspaces, which share a run."""
    plan, waiting = await expected_plan(tx, outbound, limit)
    found: dict[GroupKey, Forecast] = {}
    for group in waiting:
        probe = group.state != "CLOSED" and plan.skipped.get(group) in (None, "being_probed")
        found[group.key] = Forecast(group.queued_count, reason=plan.skipped.get(group), probe=probe)
    for group, share in (*plan.probes, *plan.shares):
        found[group.key] = replace(found[group.key], share=share)
    return found


async def expected_plan(tx: Tx, outbound: Outbound, limit: int) -> tuple[Plan, list[DueGroup]]:
    """The plan of a run that would begin now, and all groups with due rows. No probe begins."""
    waiting = await queue.groups(tx, COUNTED)
    plan = Plan.of(waiting, outbound, limit)
    while group := plan.next_probe():
        plan.add_probe(group, await breaker.probe_rows(tx, group))
    return plan, waiting
