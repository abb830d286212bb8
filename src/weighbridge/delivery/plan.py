"""The plan of one run: which groups send how many rows, and why the others send none.

A run carries it out; the forecast and the dry run show it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from weighbridge.delivery.context import Outbound
from weighbridge.delivery.queue import Group
from weighbridge.model.fair_shares import most_overdue_first, shares

COUNTED = 10_000  # rows of a group that count for its share; longer groups have the same weight


@dataclass
class Plan:
    """Every group with due rows: it probes, has a share (which may be 0), or is skipped for a reason."""

    probes: list[tuple[Group, int]] = field(default_factory=list)
    shares: list[tuple[Group, int]] = field(default_factory=list)
    skipped: dict[Group, str] = field(default_factory=dict)

    @property
    def open_groups(self) -> list[Group]:
        """Groups whose breaker is open, and whose next probe is not due."""
        return [group for group, reason in self.skipped.items() if reason == "circuit_open"]


async def make_plan(
    waiting: Sequence[Group],
    outbound: Outbound,
    limit: int,
    begin_probe: Callable[[Group], Awaitable[int | None]],
) -> Plan:
    """Divide `limit` rows between the groups.

    Calls `begin_probe` for each group to probe, in order, until the limit is used up. It returns how many rows the
    probe may send; None: no probe now.
    """
    plan = Plan()
    closed: list[Group] = []
    to_probe: list[Group] = []
    for group in waiting:
        if reason := blocked_by(group, outbound):
            plan.skipped[group] = reason
        elif group.state == "CLOSED":
            closed.append(group)
        elif group.probe_due:
            to_probe.append(group)
        else:
            plan.skipped[group] = "circuit_open"
    # Half of the limit is kept for closed groups, however many are to be probed.
    left = (limit + 1) // 2 if closed else limit
    for group in most_overdue_first(to_probe):
        if left <= 0:
            break
        rows = await begin_probe(group)
        if rows is None:
            plan.skipped[group] = "being_probed"
        else:
            plan.probes.append((group, min(rows, group.queued_count, left)))
            left -= plan.probes[-1][1]
    plan.shares = shares(closed, limit - sum(rows for _, rows in plan.probes))
    return plan


def blocked_by(group: Group, outbound: Outbound) -> str | None:
    """Why a group can send nothing, apart from its breaker."""
    if group.provider_key not in outbound.providers:
        return "unknown_provider"  # the rows wait for a process that has this provider
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
