"""The shares of the next run, by group. Nothing is claimed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from weighbridge.delivery import breaker, queue
from weighbridge.delivery.context import Outbound
from weighbridge.delivery.group_key import GroupKey
from weighbridge.delivery.plan import COUNTED, make_plan
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
    waiting = await queue.groups(tx, COUNTED)
    plan = await make_plan(waiting, outbound, limit, partial(breaker.probe_rows, tx))
    found: dict[GroupKey, Forecast] = {}
    for group in waiting:
        probe = group.state != "CLOSED" and plan.skipped.get(group) in (None, "being_probed")
        found[group.key] = Forecast(group.queued_count, reason=plan.skipped.get(group), probe=probe)
    for group, share in (*plan.probes, *plan.shares):
        found[group.key] = replace(found[group.key], share=share)
    return found
