"""The shares of the next run, by group. Nothing is claimed."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from weighbridge.delivery import overview, queue
from weighbridge.delivery.context import Outbound
from weighbridge.delivery.queue import Group
from weighbridge.delivery.run import COUNTED, blocked_by
from weighbridge.model.shares import in_turn, shares
from weighbridge.postgres.pool import Tx


@dataclass(frozen=True)
class Forecast:
    """For a group with due rows: how many the next run would send, or why none."""

    due: int  # at most COUNTED
    share: int = 0
    reason: str | None = None
    probe: bool = False  # a few rows, to test whether the provider works again


async def forecast(tx: Tx, parts: Outbound, limit: int) -> dict[tuple[UUID, str], Forecast]:
    """Forecast for all groups of all workspaces, which share a run."""
    waiting = await queue.groups(tx, COUNTED)
    found: dict[tuple[UUID, str], Forecast] = {}
    closed: list[Group] = []
    due: list[Group] = []
    for group in waiting:
        reason = blocked_by(group, parts)
        if reason is None and group.state != "CLOSED" and not group.probe_due:
            reason = "circuit_open"
        found[group.site_id, group.provider_key] = Forecast(group.queued_count, reason=reason)
        if reason is None:
            (closed if group.state == "CLOSED" else due).append(group)
    left = (limit + 1) // 2 if closed else limit
    probed = 0
    for group in in_turn(due):
        rows = await overview.probe_rows(tx, group)
        share = min(rows or 0, group.queued_count, left - probed)
        reason = "being_probed" if rows is None else None
        found[group.site_id, group.provider_key] = Forecast(group.queued_count, share, reason, probe=True)
        probed += share
    for group, share in shares(closed, limit - probed):
        found[group.site_id, group.provider_key] = Forecast(group.queued_count, share)
    return found
